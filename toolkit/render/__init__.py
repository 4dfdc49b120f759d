"""The forms of a report: text, Markdown, SARIF, JUnit, GitHub annotations."""

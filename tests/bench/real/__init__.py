"""Programs that really import and call, under an interpreter that has torch: `truth.py` starts them."""

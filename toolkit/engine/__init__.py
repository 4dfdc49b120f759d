"""The flow: register, collect, judge. Sessions, configuration and facts files belong here. It knows no single rule."""

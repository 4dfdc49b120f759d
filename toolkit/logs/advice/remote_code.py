"""Advice on the code that a model brings with it."""

from __future__ import annotations

from verl_doctor.toolkit.logs.advice.calls import CALL
from verl_doctor.toolkit.logs.advice.places import NONE, OUTSIDE, Place, quoted_source
from verl_doctor.toolkit.logs.blame import REMOTE_CODE
from verl_doctor.toolkit.logs.python_errors import Raised


def of_remote_code(raised: Raised, place: Place) -> str:
    """Return advice on a fault in the code that a model brings with it."""
    if place.package != REMOTE_CODE or raised.name in OUTSIDE:
        return ""
    code = f": {shown}" if (shown := quoted_source(place.code)) else ""
    return (
        f"the model's own code (trust_remote_code) fails at {place.at}{code}: install the releases of "
        "transformers and torch that its model card names (transformers_version in config.json), "
        "download its newest code from the Hub, or load it without trust_remote_code if transformers "
        "has the architecture; some models' code supports inference only"
    )


def of_remote_api(raised: Raised, place: Place) -> str:
    """Return advice on a name that the code which a model brings with it does not find."""
    is_api = raised.name in {"AttributeError", "ImportError"} or CALL.search(raised.message)
    return of_remote_code(raised, place) if is_api and NONE not in raised.message else ""

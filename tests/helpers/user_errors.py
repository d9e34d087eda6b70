"""The message of a UserError."""

from collections.abc import Callable
from typing import Any

import pytest

from t2t_repro.errors import UserError


def user_error(call: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    """Returns the message of the UserError that a call raises; the message must be one line."""
    with pytest.raises(UserError) as error:
        call(*arguments, **options)
    assert "\n" not in str(error.value)
    return str(error.value)

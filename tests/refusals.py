"""What is refused with a sentence, as one line of a test."""

import pytest

from reconform import ReconformError


def refused(words, call, *arguments, error=ReconformError, **options):
    """Make a call that must end with an error in which these words are found."""
    with pytest.raises(error, match=words):
        call(*arguments, **options)

"""What all tests need."""

import signal

# Where a shell starts the tests in the background, SIGINT is ignored, here and in all programs that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

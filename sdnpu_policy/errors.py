"""The one exception for what a user can mend: a wrong file, topic, parameter or value."""


class SdnpuError(Exception):
    """A fault the user can mend.

    The message is one line that names the file, topic or parameter, the value found, and what would be right.
    Programs show that line and exit with status 2; nodes refuse the transition and log it.
    """

"""Texts of the login's pages that code chooses; translated as those of the console are."""

AGAIN = "This page was opened twice, or too long ago: please confirm once more."
NO_COOKIE = "Your browser has not sent the cookie of this page: please confirm once more."
NEVER_COOKIE = (
    "Your browser keeps no cookies of this gateway, so that it cannot be told from another one."
)
ALLOW_COOKIES = "Allow cookies for this address, or open this address in your usual browser."
FOREIGN_FORM = "This form was not sent by a page of this gateway."
NOT_HERE = "This login was not begun in this browser, or too long ago."
BEGIN_AGAIN = "Begin again in the program that you wanted to use."
DISABLED = "Your account is disabled here."
ASK = "Ask your administrator."
PROVIDER_REFUSED = "The identity provider did not log you in."
PROVIDER_WRONG = "The identity provider does not answer as it should."
PROVIDER_AWAY = "The identity provider cannot be reached."
UNKNOWN_CLIENT = "The program that sent you here is not known to this gateway."
REGISTER_AGAIN = (
    "Remove this server in the program and add it again: it then introduces itself anew."
)
NO_LOGIN_CLIENT = "This program may not log people in."
UNKNOWN_REDIRECT = (
    "The program that sent you here wants you to come back to an address that it has not "
    "registered."
)
UNREADABLE = "This address cannot be read."
WRONG = "Name or password is wrong."
TOO_OFTEN = "Too many attempts from here. Try again in {seconds} seconds."
BUSY = "Too many people log in at this moment. Try again soon."
DIFFERENT = "The two passwords are not the same."
SAME = "That is the password you have."
USED = "This invitation was used before, or has ended."
SHORT = "The password is too short: it needs {least} characters."
LONG = "The password is too long."
EASY = "The password is easy to guess: take several unrelated words, and not your name."
NEW_INVITATION = "Ask your administrator for another one."

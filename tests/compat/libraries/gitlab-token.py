from gidgetlab.sansio import Event

LIBRARY = "gidgetlab"
SECRET = "made-for-tests-made-for-tests"


def judge(body, headers, url, secret):
    """The id is in a header that it does not read."""
    event = Event.from_http(headers, body, secret=secret)
    return {"type": event.event}

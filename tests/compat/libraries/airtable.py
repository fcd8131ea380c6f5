import base64

from pyairtable.models import WebhookNotification

LIBRARY = "pyairtable"
SECRET = base64.b64encode(b"made for tests, 24 bytes").decode()


def judge(body, headers, url, secret):
    """A notification has no id and no type."""
    header = headers.get("x-airtable-content-mac", "")
    WebhookNotification.from_request(body.decode(), header, secret)
    return {}

import hashlib
import hmac
import json

import django
from django.conf import settings

if not settings.configured:
    settings.configure(ALLOWED_HOSTS=["*"])
    django.setup()

from anymail.webhooks.mailgun import MailgunTrackingWebhookView
from django.test import RequestFactory

LIBRARY = "django-anymail"  # it does not look at the time
SECRET = "made-for-tests-made-for-tests"


def judge(body, headers, url, secret):
    view = MailgunTrackingWebhookView(webhook_signing_key=secret)
    request = RequestFactory().post("/", body, content_type="application/json")
    for validate in view.validators:
        validate(view, request)
    event = view.parse_events(request)[0]
    return {"id": event.event_id, "type": event.esp_event["event-data"]["event"]}


def sign(body, id, type, at, secret):
    """Mailgun signs its time and this token, which its library takes for the event's id too."""
    signed = hmac.new(secret.encode(), f"{at}{id}".encode(), hashlib.sha256).hexdigest()
    block = {"timestamp": str(at), "token": id, "signature": signed}
    return {"headers": {}, "body": json.dumps({"signature": block, "event-data": json.loads(body)})}


SAMPLE = {
    "id": "made-for-tests-made-for-tests-made-for-tests-12345",
    "type": "delivered",
    "body": '{"event":"delivered","timestamp":1795811989.5,"id":"made-for-tests"}',
}

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

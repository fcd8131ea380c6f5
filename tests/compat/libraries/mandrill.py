import django
from django.conf import settings

if not settings.configured:
    settings.configure(ALLOWED_HOSTS=["*"])
    django.setup()

from anymail.webhooks.mandrill import MandrillCombinedWebhookView
from django.test import RequestFactory

LIBRARY = "django-anymail"
SECRET = "made-for-tests-made-for-tests"
SETTINGS = 'public_url = "https://hooks.example.org"'


def judge(body, headers, url, secret):
    """A request has many events, so neither an id nor a type."""
    view = MandrillCombinedWebhookView(webhook_key=secret, webhook_url=url)
    form = "application/x-www-form-urlencoded"
    signature = {"HTTP_X_MANDRILL_SIGNATURE": headers["x-mandrill-signature"]}
    request = RequestFactory().post("/", body, content_type=form, **signature)
    for validate in view.validators:
        validate(view, request)
    return {}

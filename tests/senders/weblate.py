"""Has Weblate's own module sign and send one webhook.

    python weblate.py URL SECRET NUMBER TARGET

The module is Weblate's addons/webhooks.py as it comes from PyPI. What it imports of Weblate and Django is replaced by
empty names here, and only what it calls does something: the validation of the payload is left out, and the request
goes out by httpx2, which is Weblate's library, without Weblate's check of the address.
"""

import importlib.util
import sys
import types
from datetime import datetime, timezone
from importlib.metadata import distribution
from uuid import NAMESPACE_URL, uuid5

import httpx2


class Anything:
    """Stands for a name that is imported and not used here."""

    def __init__(self, *args, **named):
        pass

    def __class_getitem__(cls, _):
        return cls


class ChangeBaseAddon:
    """Weblate's base class has the add-on's instance, with its configuration."""

    def __init__(self, instance):
        self.instance = instance


class Override:
    def __init__(self, language):
        pass

    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


def fetch_validated_url(method, url, *, json, headers, timeout, **_):
    return httpx2.request(method, url, json=json, headers=headers, timeout=timeout)


NAMES = {
    "jsonschema.exceptions": {"ValidationError": ValueError, "SchemaError": ValueError},
    "django.conf": {"settings": types.SimpleNamespace(WEBHOOK_RESTRICT_PRIVATE=False, WEBHOOK_PRIVATE_ALLOWLIST=[])},
    "django.core.exceptions": {"ValidationError": ValueError},
    "django.template.loader": {"render_to_string": Anything},
    "django.utils": {"timezone": types.SimpleNamespace(now=lambda: datetime.now(timezone.utc))},
    "django.utils.translation": {"gettext_lazy": str, "override": Override},
    "drf_spectacular.utils": {"OpenApiWebhook": Anything},
    "weblate_schemas": {"load_schema": lambda _: {}, "validate_schema": lambda *_: None},
    "weblate.addons.base": {"ChangeBaseAddon": ChangeBaseAddon},
    "weblate.addons.forms": {"BaseWebhooksAddonForm": Anything, "WebhooksAddonForm": Anything},
    "weblate.trans.util": {"split_plural": lambda text: [text]},
    "weblate.utils.const": {"WEBHOOKS_SECRET_PREFIX": "whsec_"},
    "weblate.utils.requests": {"fetch_validated_url": fetch_validated_url},
    "weblate.utils.site": {"get_site_url": str},
    "weblate.utils.views": {"key_name": str},
}


def load():
    """Weblate's module, with these names in place of what it imports."""
    for name, members in NAMES.items():
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            part = ".".join(parts[:end])
            module = sys.modules.setdefault(part, types.ModuleType(part))
            module.__path__ = []
            if end > 1:
                setattr(sys.modules[".".join(parts[: end - 1])], parts[end - 1], module)
        for member, value in members.items():
            setattr(sys.modules[name], member, value)
    path = distribution("weblate").locate_file("weblate/addons/webhooks.py")
    spec = importlib.util.spec_from_file_location("webhooks", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    url, secret, number, target = sys.argv[1:]
    change = types.SimpleNamespace(
        id=int(number),
        timestamp=datetime.now(timezone.utc),
        target=target,
        old=None,
        unit=None,
        author=types.SimpleNamespace(username="author"),
        user=None,
        project=types.SimpleNamespace(slug="tests"),
        component=None,
        translation=None,
        get_action_display=lambda: "Translation changed",
        get_absolute_url=lambda: None,
        get_uuid=lambda: uuid5(NAMESPACE_URL, f"2.{number}"),
    )
    configuration = {"webhook_url": url, "secret": secret}
    addon = load().WebhookAddon(types.SimpleNamespace(configuration=configuration))
    try:
        print(addon.change_event(change)["response"]["status_code"])
    except Exception as error:  # Weblate logs it, and goes on.
        print(f"{type(error).__name__}: {error}")


main()

import asyncio
import base64
import types
from datetime import UTC, datetime

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from kickpy.webhooks.server import WebhookServer

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PEM = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo

LIBRARY = "kickcom.py"
SECRET = KEY.public_key().public_bytes(*PEM).decode()
SETTINGS = 'sender = "123456789"'


def judge(body, headers, url, secret):
    """What its server does before it hands the event on."""
    message_id = headers["kick-event-message-id"]
    message = f"{message_id}.{headers['kick-event-message-timestamp']}.{body.decode()}"
    server = types.SimpleNamespace(_public_key=secret.encode())
    verified = WebhookServer._verify_signature(server, message.encode(), headers["kick-event-signature"].encode())
    return asyncio.run(verified) and {"id": message_id, "type": headers["kick-event-type"]}


def sign(body, id, type, at, secret):
    """The library only verifies."""
    time = f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"
    signature = KEY.sign(f"{id}.{time}.{body}".encode(), padding.PKCS1v15(), hashes.SHA256())
    return {
        "Kick-Event-Message-Id": id,
        "Kick-Event-Message-Timestamp": time,
        "Kick-Event-Signature": base64.b64encode(signature).decode(),
        "Kick-Event-Subscription-Id": "01JTKSJ2NCBF4GY2G6ZXS2F9QX",
        "Kick-Event-Type": type,
        "Kick-Event-Version": "1",
    }


SAMPLE = {
    "id": "01JTKSJ4XZ8Q2V0M3E5N7P9R1T",
    "type": "channel.followed",
    "body": '{"broadcaster":{"user_id":123456789,"username":"a"},"follower":{"user_id":987654321,"username":"b"}}',
}

#!/usr/bin/env python3
"""Prints the test vectors of FlashFlow's wire protocol as JSON.

This is a second implementation: it shares no code with the Rust one, and its sections are those of
PROTOCOL.md. Its cryptography is that of the PyPI package `cryptography` (OpenSSL); the Rust side
uses RustCrypto and the dalek crates. So agreement says something about both.

    pip install cryptography
    python3 crates/ff-proto/tests/vectors.py > crates/ff-proto/tests/vectors.json

A body is printed without the zeros that fill it up to 509 bytes.
"""

import ipaddress
import json
import math
import struct

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

BODY_LEN = 509
MEASUREMENT, MEAS_ECHO, CREATE_FAST = 80, 81, 5
AES128_CTR, CGO_AES128 = 1, 2
PARAMS, PARAMS_OK, CREATE, CREATED, BG, STATS, END, ERR = range(1, 9)

MEASUREMENT_ID = bytes(range(0x10, 0x20))
COORDINATOR = Ed25519PrivateKey.from_private_bytes(b"\xc0" * 32)
MEASURER_A = Ed25519PrivateKey.from_private_bytes(b"\xa0" * 32)
MEASURER_B = Ed25519PrivateKey.from_private_bytes(b"\xb0" * 32)
COORDINATOR_EXPORTER = bytes(range(0x40, 0x60))
MEASURER_EXPORTER = bytes(range(0x60, 0x80))
MEASURER_EPHEMERAL = bytes(range(0x80, 0xA0))
TARGET_EPHEMERAL = bytes(range(0xA0, 0xC0))
CONTENT_SECRET = bytes(range(0xD0, 0xE0))
SAMPLING_SECRET = bytes(range(0xE0, 0xF0))
ECHOED = [5_000_000_001, 243_191]


# §3: who is speaking

def public(key):
    return key.public_key().public_bytes_raw()


def signed_bytes(exporter, command, payload):
    return b"flashflow-link-signature-1" + bytes([command]) + exporter + payload


def sign(key, exporter, command, fields):
    """Fields and extensions in; the whole payload with signer and signature out."""
    payload = fields + public(key)
    return payload + key.sign(signed_bytes(exporter, command, payload))


# §4: control messages

def body(command, payload):
    assert len(payload) <= BODY_LEN - 4
    return struct.pack(">BBH", 1, command, len(payload)) + payload


def extensions(*items):
    return bytes([len(items)]) + b"".join(
        bytes([kind, len(value)]) + value for kind, value in items
    )


def fixed_cell(circ_id, command, content):
    return struct.pack(">IB", circ_id, command) + content.ljust(BODY_LEN, b"\0")


# §5: circuit key exchange

def x25519_public(secret):
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def circuit_keys(secret, peer, measurer_public, target_public, exporter, kind=AES128_CTR):
    shared = X25519PrivateKey.from_private_bytes(secret).exchange(
        X25519PublicKey.from_public_bytes(peer)
    )
    info = b"flashflow-circuit-%d" % kind + MEASUREMENT_ID + measurer_public + target_public
    length = {AES128_CTR: 16, CGO_AES128: 80}[kind]
    okm = HKDF(hashes.SHA256(), length + 32, salt=exporter, info=info).derive(shared)
    return shared, okm[:length], okm[length:]


# §6: content and check

def keystream(key, offset, length):
    counter = (offset // 16).to_bytes(16, "big")
    skip = offset % 16
    stream = Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor()
    return stream.update(bytes(skip + length))[skip:]


def xor(a, b):
    return bytes(x ^ y for x, y in zip(a, b, strict=True))


def polyval(key, data):
    """POLYVAL of RFC 8452, section 3, bit by bit: x^0 is the lowest bit of the first byte."""
    modulus = sum(1 << n for n in (128, 127, 126, 121, 0))

    def multiply(a, b):
        product = 0
        for n in range(128):
            if b >> n & 1:
                product ^= a << n
        for n in reversed(range(128, 256)):
            if product >> n & 1:
                product ^= modulus << (n - 128)
        return product

    h = int.from_bytes(key, "little")
    # dot(a, b) = a * b * x^-128; each step divides the key by x.
    for _ in range(128):
        h = (h ^ modulus if h & 1 else h) >> 1
    total = 0
    for at in range(0, len(data), 16):
        block = int.from_bytes(data[at : at + 16].ljust(16, b"\0"), "little")
        total = multiply(total ^ block, h)
    return total.to_bytes(16, "little")


def aes_block(key, block):
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(block)


def cgo_forward(keys, tag, command, content):
    """One cell through a relay; its first 16 bytes are the next tag."""
    et_aes, et_polyval, prf_aes, prf_polyval = (keys[at : at + 16] for at in range(0, 64, 16))
    left, right = content[:16], content[16:]
    mask = polyval(et_polyval, tag + bytes([command]) + right)
    left = xor(aes_block(et_aes, xor(left, mask)), mask)
    counter = bytearray(polyval(prf_polyval, left))
    counter[15] &= 0xC0
    stream = Cipher(algorithms.AES(prf_aes), modes.CTR(bytes(counter))).encryptor()
    return left + stream.update(right)


# RFC 8452, appendix A.
assert polyval(
    bytes.fromhex("25629347589242761d31f826ba4b757b"),
    bytes.fromhex("4f4f95668c83dfb6401762bb2d01a262d1a24ddd2721d006bbe45f20d3c9f362"),
) == bytes.fromhex("f7a3b47b846119fae5b7866cf5e5b77e")


def draws(secret, least, links, until):
    """The cells of one of so many links that are checked, up to one behind `until`; all links
    have had as many cells as this one whenever it draws."""
    cells, cell, draw = [], 0, 0
    while cell < until:
        cells.append(cell)
        cell += 1
        probability = max(least, 300 / (links * (cell + 1)))
        if probability < 1:
            (number,) = struct.unpack(">Q", keystream(secret, 8 * draw, 8))
            uniform = ((number >> 11) + 0.5) / 2**53
            cell += int(math.log(uniform) / math.log1p(-probability))
            draw += 1
    return cells + [cell]


# §9: the estimate

def estimate(percent, seconds):
    totals = sorted(
        x + min(min(sent, received), x * percent // (100 - percent))
        for x, sent, received in seconds
    )
    upper, lower = totals[len(totals) // 2], totals[(len(totals) - 1) // 2]
    return min(lower + (upper - lower) // 2, 105 * sum(totals) // (100 * len(totals)))


def messages():
    measurers = [
        {"key": MEASURER_A, "sockets": 100, "address": "192.0.2.7"},
        {"key": MEASURER_B, "sockets": 60, "address": "2001:db8::7"},
    ]
    params = MEASUREMENT_ID + struct.pack(">HB", 30, len(measurers))
    for measurer in measurers:
        params += public(measurer["key"]) + struct.pack(">H", measurer["sockets"])
    addresses = [ipaddress.ip_address(measurer["address"]).packed for measurer in measurers]
    addresses = [(1, bytes([i]) + address) for i, address in enumerate(addresses)]
    with_crypto = params + extensions(*addresses, (2, bytes([CGO_AES128, AES128_CTR])))
    params += extensions(*addresses)

    measurer_public, target_public = map(x25519_public, (MEASURER_EPHEMERAL, TARGET_EPHEMERAL))
    _, _, confirmation = circuit_keys(
        MEASURER_EPHEMERAL, target_public, measurer_public, target_public, MEASURER_EXPORTER
    )
    text = "this coordinator has measured in this period"

    def request(crypto, fields):
        return {
            "measurement": MEASUREMENT_ID.hex(),
            "duration_secs": 30,
            "measurers": [
                {
                    "id": public(measurer["key"]).hex(),
                    "sockets": measurer["sockets"],
                    "address": measurer["address"],
                }
                for measurer in measurers
            ],
            "crypto": crypto,
            "signing_seed": COORDINATOR.private_bytes_raw().hex(),
            "exporter": COORDINATOR_EXPORTER.hex(),
            "body": body(PARAMS, sign(COORDINATOR, COORDINATOR_EXPORTER, PARAMS, fields)).hex(),
        }

    return {
        "MEAS_PARAMS": request([AES128_CTR], params),
        "MEAS_PARAMS with crypto kinds": request([CGO_AES128, AES128_CTR], with_crypto),
        "MEAS_PARAMS_OK": {
            "measurement": MEASUREMENT_ID.hex(),
            "duration_secs": 30,
            "percent": 25,
            "crypto": 1,
            "body": body(
                PARAMS_OK, MEASUREMENT_ID + struct.pack(">HBB", 30, 25, 1) + extensions()
            ).hex(),
        },
        "MEAS_CREATE": {
            "measurement": MEASUREMENT_ID.hex(),
            "public": measurer_public.hex(),
            "signing_seed": MEASURER_A.private_bytes_raw().hex(),
            "exporter": MEASURER_EXPORTER.hex(),
            "body": body(
                CREATE,
                sign(
                    MEASURER_A,
                    MEASURER_EXPORTER,
                    CREATE,
                    MEASUREMENT_ID + measurer_public + extensions(),
                ),
            ).hex(),
        },
        "MEAS_CREATED": {
            "public": target_public.hex(),
            "confirmation": confirmation.hex(),
            "body": body(CREATED, target_public + confirmation + extensions()).hex(),
        },
        "MEAS_BG": {
            "second": 29,
            "sent": 5_000_000_000,
            "received": 5_000_000_514,
            "body": body(
                BG, struct.pack(">HQQ", 29, 5_000_000_000, 5_000_000_514) + extensions()
            ).hex(),
        },
        "MEAS_BG with echoed cells": {
            "second": 29,
            "sent": 5_000_000_000,
            "received": 5_000_000_514,
            "echoed": ECHOED,
            "body": body(
                BG,
                struct.pack(">HQQ", 29, 5_000_000_000, 5_000_000_514)
                + extensions((1, struct.pack(">2Q", *ECHOED))),
            ).hex(),
        },
        "MEAS_STATS": {
            "second": 29,
            "cpu_permille": 983,
            "overloaded": True,
            "body": body(STATS, struct.pack(">HHB", 29, 983, 1) + extensions()).hex(),
        },
        "MEAS_END": {
            "measurement": MEASUREMENT_ID.hex(),
            "body": body(END, MEASUREMENT_ID + extensions()).hex(),
        },
        "MEAS_ERR": {
            "code": 3,
            "text": text,
            "body": body(
                ERR, struct.pack(">HB", 3, len(text)) + text.encode() + extensions()
            ).hex(),
        },
    }


def extended():
    """A message with extensions that version 1 does not know: read as if they were not there."""
    payload = struct.pack(">HQQ", 29, 5_000_000_000, 5_000_000_514)
    payload += extensions((200, b""), (201, b"later"))
    return {"reads_as": "MEAS_BG", "body": body(BG, payload).hex()}


def signature():
    payload = MEASUREMENT_ID + x25519_public(MEASURER_EPHEMERAL) + extensions()
    payload += public(MEASURER_A)
    return {
        "seed": MEASURER_A.private_bytes_raw().hex(),
        "signer": public(MEASURER_A).hex(),
        "exporter": MEASURER_EXPORTER.hex(),
        "command": CREATE,
        "payload": payload.hex(),
        "signed_bytes": signed_bytes(MEASURER_EXPORTER, CREATE, payload).hex(),
        "signature": MEASURER_A.sign(signed_bytes(MEASURER_EXPORTER, CREATE, payload)).hex(),
    }


def exchange(kind):
    measurer_public, target_public = map(x25519_public, (MEASURER_EPHEMERAL, TARGET_EPHEMERAL))
    publics = (measurer_public, target_public, MEASURER_EXPORTER)
    ours = circuit_keys(MEASURER_EPHEMERAL, target_public, *publics, kind)
    theirs = circuit_keys(TARGET_EPHEMERAL, measurer_public, *publics, kind)
    assert ours == theirs
    shared, forward, confirmation = ours
    return {
        "measurement": MEASUREMENT_ID.hex(),
        "exporter": MEASURER_EXPORTER.hex(),
        "measurer_secret": MEASURER_EPHEMERAL.hex(),
        "measurer_public": measurer_public.hex(),
        "target_secret": TARGET_EPHEMERAL.hex(),
        "target_public": target_public.hex(),
        "crypto": kind,
        "shared": shared.hex(),
        "forward": forward.hex(),
        "confirmation": confirmation.hex(),
    }


def echoes():
    forward = bytes.fromhex(exchange(AES128_CTR)["forward"])
    cells = []
    for index in (0, 5, 10_000_000_007):
        content = keystream(CONTENT_SECRET, BODY_LEN * index, BODY_LEN)
        returned = xor(content, keystream(forward, BODY_LEN * index, BODY_LEN))
        cells.append({"index": index, "sent": content.hex(), "returned": returned.hex()})
    return {
        "content_secret": CONTENT_SECRET.hex(),
        "forward": forward.hex(),
        "circ_id": 0x8000_0001,
        "first_cell": fixed_cell(
            0x8000_0001, MEAS_ECHO, keystream(CONTENT_SECRET, 0, BODY_LEN)
        ).hex(),
        "cells": cells,
    }


def cgo_echoes():
    """The first cells of a circuit; then one far behind a cell with a tag that is given."""
    forward = bytes.fromhex(exchange(CGO_AES128)["forward"])
    cells, tag = [], bytes(16)
    for index in (0, 1, 2, 3, 4, 10_000_000_007):
        if index > 4:
            tag = bytes(range(0x20, 0x30))
        content = keystream(CONTENT_SECRET, BODY_LEN * index, BODY_LEN)
        returned = cgo_forward(forward, tag, MEAS_ECHO, content)
        cells.append(
            {"index": index, "before": tag.hex(), "sent": content.hex(), "returned": returned.hex()}
        )
        tag = returned[:16]
    return {"content_secret": CONTENT_SECRET.hex(), "forward": forward.hex(), "cells": cells}


def samples():
    return {
        "secret": SAMPLING_SECRET.hex(),
        "runs": [
            {"probability": p, "links": links, "cells": draws(SAMPLING_SECRET, p, links, until)}
            for p, links, until in ((0.5, 1, 600), (1e-3, 20, 20_000), (1e-5, 160, 1_000_000))
        ],
    }


def probe():
    return {
        "key_material": bytes(range(20)).hex(),
        "cell": fixed_cell(0x8000_0002, CREATE_FAST, bytes(range(20))).hex(),
    }


def estimates():
    odd = [[31_250_000, 4_000_000, 5_000_000], [30_000_000, 90_000_000, 80_000_000], [0, 7, 9]]
    even = odd + [[29_999_999, 10_000_000, 10_000_000]]
    steady = [[31_250_000, 4_000_000, 5_000_000]] + [[30_000_000 + i, 90_000_000, 9] for i in (0, 7)]
    return [
        {"percent": percent, "seconds": seconds, "estimate": estimate(percent, seconds)}
        for percent in (0, 10, 25, 99)
        for seconds in (odd, even, steady)
    ]


def believed(claimed, reported):
    """§9: up to the end of each second no more than what the target reports one second later."""
    until = [
        min(sum(claimed[: j + 1]), sum(reported[: j + 2])) for j in range(len(claimed))
    ]
    return [until[0]] + [until[j] - until[j - 1] for j in range(1, len(until))]


def claims():
    cases = [
        ([100, 100, 90], [100, 100, 100]),
        ([150, 100, 50], [100, 120, 90]),
        ([120, 120, 120], [100, 100, 100]),
        ([500, 0, 0, 0, 0], [100] * 5),
        ([100, 100, 100], [50, 0, 170]),
    ]
    return [
        {
            "claimed": claimed,
            "reported": reported,
            "excess": max(0, sum(claimed) - sum(reported)),
            "believed": believed(claimed, reported),
        }
        for claimed, reported in cases
    ]


print(
    json.dumps(
        {
            "origin": "printed by crates/ff-proto/tests/vectors.py, which is a second"
            " implementation (Python, `cryptography` from PyPI); do not edit by hand",
            "messages": messages(),
            "extended": extended(),
            "signature": signature(),
            "exchange": exchange(AES128_CTR),
            "exchange for CGO": exchange(CGO_AES128),
            "echoes": echoes(),
            "echoes with CGO": cgo_echoes(),
            "samples": samples(),
            "probe": probe(),
            "estimates": estimates(),
            "claims": claims(),
        },
        indent=1,
    )
)

"""What stem reads of consensuses and descriptors, a row of words for each relay, for tests/stem.rs.

    stem_fields.py consensus|microdesc|descriptors FILE

FILE is plain. Documents are not validated: what stem rejects then is not in the rows.
"""

import calendar, sys
from stem.descriptor import DocumentHandler, parse_file


def secs(when):
    return calendar.timegm(when.timetuple())


def consensus(path, kind):
    handler = DocumentHandler.DOCUMENT
    document = next(parse_file(path, f"{kind} 1.0", document_handler=handler, validate=False))
    weights = ",".join(f"{key}={value}" for key, value in sorted(document.bandwidth_weights.items()))
    print("consensus", secs(document.valid_after), document.consensus_method, weights)
    for relay in sorted(document.routers.values(), key=lambda relay: relay.fingerprint):
        digest = relay.digest if kind == "network-status-consensus-3" else relay.microdescriptor_digest
        others = ",".join(sorted(address.strip("[]") for address, _, _ in relay.or_addresses))
        version = str(relay.version) if relay.version else "-"
        flags = ",".join(sorted(relay.flags))
        print(relay.fingerprint, digest, relay.nickname, relay.address, relay.or_port, relay.dir_port or 0, others or "-", version, relay.bandwidth, int(bool(relay.is_unmeasured)), flags)


def descriptors(path):
    for one in parse_file(path, "server-descriptor 1.0", validate=False):
        family = ",".join(sorted({member[1:41] for member in one.family if member.startswith("$")}))
        print(one.digest(), one.fingerprint, one.nickname, one.address, one.or_port, secs(one.published), one.average_bandwidth, one.burst_bandwidth, one.observed_bandwidth, one.uptime if one.uptime is not None else "-", family or "-")


kind, path = sys.argv[1:]
if kind == "descriptors":
    descriptors(path)
else:
    consensus(path, {"consensus": "network-status-consensus-3", "microdesc": "network-status-microdesc-consensus-3"}[kind])

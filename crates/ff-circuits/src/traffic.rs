//! The bytes of a download on the client's link: its payload, and the overhead of cells, TLS, TCP
//! and IP.
//!
//! The overhead is computed from the protocols, for both directions, without retransmissions and
//! without other traffic of the client, such as directory documents.

use serde::Serialize;

use crate::record::CircuitRecord;

/// Bytes on the wire per byte of payload of a long download, towards the client: cells of 514 bytes
/// for 498 (tor-spec 6.1), records of TLS 1.3 with 22 bytes for seven cells, and packets of 1,500
/// bytes with 1,448 of them (IPv4, TCP with timestamps).
pub const WIRE: f64 = 514.0 / 498.0 * (1.0 + 22.0 / (7.0 * 514.0)) * 1500.0 / 1448.0;

/// A cell on a link, in bytes (tor-spec 3).
const CELL: u64 = 514;
/// Payload in a cell, in bytes (tor-spec 6.1).
const IN_CELL: u64 = 498;
/// Cells in a TLS record: tor writes about 4 KiB at once.
const IN_RECORD: u64 = 7;
/// The overhead of TLS 1.3 per record, in bytes: header, type and tag (RFC 8446 §5.2).
const RECORD: u64 = 22;
/// The overhead of TCP with timestamps and IPv4 per packet, in bytes.
const PACKET: u64 = 52;
/// Payload of TCP in a full packet, in bytes.
const IN_PACKET: u64 = 1448;
/// Cells for each SENDME of a circuit: the parameter `cc_sendme_inc` (prop 324).
const FOR_SENDME: u64 = 31;
/// Cells of a circuit of three hops and of a stream, in both directions, without those with
/// payload: CREATE2, CREATED2, two EXTEND2 and EXTENDED2, BEGIN, CONNECTED, the request, END,
/// DESTROY.
const CONTROL: u64 = 11;
/// The header of a source's answer, in bytes.
const HEADER: u64 = 250;
/// Opening and closing a link, in bytes: handshakes of TCP and TLS 1.3, VERSIONS, CERTS,
/// AUTH_CHALLENGE and NETINFO.
const LINK: u64 = 6_000;
/// The largest payload in flight when a download is cut off, in bytes: the window of a stream
/// (tor-spec 7.4).
const UNDER_WAY: u64 = 500 * IN_CELL;
/// The margin of a download in addition to a tenth of the computed bytes, in bytes: for a late
/// window update, or a link that is opened twice.
const MARGIN: u64 = 300_000;

/// The parts of some traffic, in bytes in both directions.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Wire {
    /// The payload.
    pub payload: u64,
    /// The overhead of cells: headers, padding of the last one, SENDMEs, the cells of circuit and
    /// stream, the answer's header.
    pub cells: u64,
    /// The overhead of TLS, TCP and IP: records, packets, acknowledgements, the link's handshakes.
    pub tls_tcp: u64,
}

impl Wire {
    /// The sum of the parts, in bytes.
    #[must_use]
    pub const fn all(&self) -> u64 {
        self.payload.saturating_add(self.cells).saturating_add(self.tls_tcp)
    }

    /// The traffic multiplied by `number`.
    #[must_use]
    pub const fn times(&self, number: u64) -> Self {
        Self {
            payload: self.payload.saturating_mul(number),
            cells: self.cells.saturating_mul(number),
            tls_tcp: self.tls_tcp.saturating_mul(number),
        }
    }

    /// The sum of both.
    #[must_use]
    pub const fn and(&self, other: &Self) -> Self {
        Self {
            payload: self.payload.saturating_add(other.payload),
            cells: self.cells.saturating_add(other.cells),
            tls_tcp: self.tls_tcp.saturating_add(other.tls_tcp),
        }
    }
}

/// The traffic of a download of `payload` bytes, on a new circuit over a new link.
#[must_use]
pub const fn of_download(payload: u64) -> Wire {
    let down = payload.saturating_add(HEADER).div_ceil(IN_CELL);
    let down_bytes = down.saturating_mul(CELL);
    let records = down.div_ceil(IN_RECORD).saturating_mul(RECORD);
    let packets = down_bytes.saturating_add(records).div_ceil(IN_PACKET);
    // One acknowledgement per two packets.
    let packets_bytes = packets.saturating_add(packets.div_ceil(2)).saturating_mul(PACKET);
    // Each of these has its own record and packet.
    let single = down.div_ceil(FOR_SENDME).saturating_add(CONTROL);
    let tls_tcp = records
        .saturating_add(packets_bytes)
        .saturating_add(single.saturating_mul(RECORD + PACKET))
        .saturating_add(LINK);
    let cells = down_bytes.saturating_sub(payload).saturating_add(single.saturating_mul(CELL));
    Wire { payload, cells, tls_tcp }
}

/// The largest traffic of a download of this many bytes on the link, with a margin for losses: a
/// budget reserves it.
#[must_use]
pub const fn most(payload: u64) -> u64 {
    let computed = of_download(payload).all();
    computed.saturating_add(computed / 10).saturating_add(MARGIN)
}

/// The traffic of a circuit with at most one download, computed from the payload that arrived; 0 if
/// the circuit never began. For a download that was cut off, the payload that may have been in
/// flight is added.
#[must_use]
pub fn of_circuit(circuit: &CircuitRecord) -> u64 {
    if !circuit.has_begun() {
        return 0;
    }
    let payload = circuit.download.as_ref().map_or(0, |download| {
        let asked = download.asked_bytes.unwrap_or(download.bytes).max(download.bytes);
        let came = download.bytes;
        match (download.us, download.connected_us) {
            (Some(_), _) => came,
            (None, Some(_)) => came.saturating_add(UNDER_WAY).min(asked),
            (None, None) => 0,
        }
    });
    of_download(payload).all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_download_takes_what_its_protocols_add() {
        assert!((WIRE - 1.0757).abs() < 1e-4);
        let long = of_download(5_242_880);
        assert_eq!(long.payload, 5_242_880);
        // Towards the client it is WIRE; acknowledgements, SENDMEs, circuit and link add 5 to 8 %.
        let ratio = long.all() as f64 / 5_242_880.0;
        assert!((WIRE + 0.05..WIRE + 0.08).contains(&ratio), "{ratio}");
        let short = of_download(51_200);
        assert!((20_000..30_000).contains(&(short.all() - 51_200)), "{short:?}");
        assert_eq!(of_download(u64::MAX).times(2).all(), u64::MAX, "nothing overflows");
        assert_eq!(most(u64::MAX), u64::MAX);
    }

    #[test]
    fn parts_of_several_add_up() {
        let both = of_download(1000).times(3).and(&of_download(7));
        assert_eq!(both.payload, 3007);
        assert_eq!(both.all(), 3 * of_download(1000).all() + of_download(7).all());
    }

    #[test]
    fn a_circuit_never_takes_more_than_is_set_aside_for_it() {
        let circuit = |path: &str, download: serde_json::Value| -> CircuitRecord {
            let path: serde_json::Value = serde_json::from_str(path).expect("a path");
            serde_json::from_value(serde_json::json!({ "schema": 1, "number": 0, "client": "arti",
                "began_unix_secs": 0.0, "began_us": 0, "path": path, "ended_us": 9, "download": download }))
            .expect("a circuit")
        };
        let path = r#"[{"id":"A"}]"#;
        let whole =
            circuit(path, serde_json::json!({ "bytes": 9000, "asked_bytes": 9000, "us": 5 }));
        assert_eq!(of_circuit(&whole), of_download(9000).all());
        let cut = |asked: u64| {
            let cut = serde_json::json!({ "bytes": 9000, "asked_bytes": asked, "connected_us": 1 });
            circuit(path, cut)
        };
        let (cut, late) = (cut(1_000_000), cut(9001));
        assert_eq!(of_circuit(&cut), of_download(258_000).all());
        assert_eq!(of_circuit(&late), of_download(9001).all());
        let unbuilt = circuit(path, serde_json::json!({ "bytes": 0, "asked_bytes": 9000 }));
        assert_eq!(of_circuit(&unbuilt), of_download(0).all());
        let mut never = circuit("[]", serde_json::Value::Null);
        assert_eq!(of_circuit(&never), 0, "it never began");
        never.as_client = true;
        assert_eq!(of_circuit(&never), 0, "nor did that of a client's own path");
        never.path_unknown = Some("conflux".to_owned());
        assert_eq!(of_circuit(&never), of_download(0).all(), "its path is not known");
        for (one, asked) in [(whole, 9000), (cut, 1_000_000), (late, 9001), (unbuilt, 0)] {
            assert!(of_circuit(&one) < most(asked));
        }
    }
}

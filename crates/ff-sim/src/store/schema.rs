//! The tables and their columns; `doc/sim-store.md` says what they mean.

/// The version of the tables, of manifests and of the folder: another number says that one of them has changed.
pub const SCHEMA: u32 = 2;

/// What a column has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A time: milliseconds since 1970 in UTC.
    Time,
    /// A whole number below 2^63.
    Int,
    /// A whole number below 2^31.
    Small,
    /// True or false.
    Bool,
    /// Text.
    Text,
    /// So many bytes.
    Bytes(usize),
}

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// What it has.
    pub kind: Kind,
    /// Whether there may be nothing in it.
    pub is_nullable: bool,
}

/// A table.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name, and that of its folder.
    pub name: &'static str,
    /// Its columns.
    pub columns: &'static [Column],
}

impl Table {
    /// All of them.
    pub const ALL: [&'static Self; 5] =
        [&CONSENSUSES, &CONSENSUS_RELAYS, &DESCRIPTORS, &BANDWIDTH_FILES, &BANDWIDTH_LINES];

    /// The place of a column among all; for constants, because it panics if there is none.
    pub(super) const fn place(&self, name: &str) -> usize {
        let mut at = 0;
        while !is_same(self.columns[at].name.as_bytes(), name.as_bytes()) {
            at += 1;
        }
        at
    }
}

/// Whether two texts are the same.
const fn is_same(mut one: &[u8], mut other: &[u8]) -> bool {
    while let ([first, left @ ..], [second, right @ ..]) = (one, other) {
        if *first != *second {
            return false;
        }
        (one, other) = (left, right);
    }
    one.is_empty() && other.is_empty()
}

/// A column that always has something.
const fn required(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, is_nullable: false }
}

/// A column that may have nothing.
const fn optional(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, is_nullable: true }
}

/// Consensuses, a row each.
pub const CONSENSUSES: Table = Table {
    name: "consensuses",
    columns: &[
        required("valid_after", Kind::Time),
        required("flavour", Kind::Text),
        required("method", Kind::Int),
        required("relays", Kind::Int),
        required("first_row", Kind::Int),
        required("weight", Kind::Int),
        required("params", Kind::Text),
        required("bandwidth_weights", Kind::Text),
        required("document_bytes", Kind::Int),
        required("source_file", Kind::Text),
        optional("source_entry", Kind::Text),
    ],
};

/// The relays of consensuses, a row for each and each consensus.
pub const CONSENSUS_RELAYS: Table = Table {
    name: "consensus_relays",
    columns: &[
        required("valid_after", Kind::Time),
        required("flavour", Kind::Text),
        required("fingerprint", Kind::Bytes(20)),
        optional("digest", Kind::Bytes(20)),
        optional("microdescriptor_digest", Kind::Bytes(32)),
        required("nickname", Kind::Text),
        required("address", Kind::Text),
        required("or_port", Kind::Small),
        required("dir_port", Kind::Small),
        optional("other_addresses", Kind::Text),
        required("flags", Kind::Small),
        required("version", Kind::Text),
        optional("weight", Kind::Int),
        required("is_unmeasured", Kind::Bool),
    ],
};

/// Server descriptors, a row each.
pub const DESCRIPTORS: Table = Table {
    name: "descriptors",
    columns: &[
        required("digest", Kind::Bytes(20)),
        required("fingerprint", Kind::Bytes(20)),
        required("published", Kind::Time),
        required("nickname", Kind::Text),
        required("address", Kind::Text),
        required("or_port", Kind::Small),
        required("rate_bytes_per_sec", Kind::Int),
        required("burst_bytes_per_sec", Kind::Int),
        required("observed_bytes_per_sec", Kind::Int),
        required("platform", Kind::Text),
        optional("uptime_secs", Kind::Int),
        optional("overloaded", Kind::Time),
        required("family", Kind::Text),
        required("family_ids", Kind::Text),
    ],
};

/// Bandwidth files, a row each.
pub const BANDWIDTH_FILES: Table = Table {
    name: "bandwidth_files",
    columns: &[
        required("file_sha256", Kind::Bytes(32)),
        required("latest", Kind::Time),
        optional("version", Kind::Text),
        optional("software", Kind::Text),
        required("lines", Kind::Int),
        required("header", Kind::Text),
        required("source_file", Kind::Text),
        optional("source_entry", Kind::Text),
    ],
};

/// The relays' lines of bandwidth files.
pub const BANDWIDTH_LINES: Table = Table {
    name: "bandwidth_lines",
    columns: &[
        required("file_sha256", Kind::Bytes(32)),
        required("latest", Kind::Time),
        required("line", Kind::Int),
        required("fingerprint", Kind::Bytes(20)),
        required("bw_kilobytes_per_sec", Kind::Int),
        required("votes", Kind::Bool),
        optional("nickname", Kind::Text),
    ],
};

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn tables_have_the_columns_that_the_document_lists() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../doc/sim-store.md");
        let text = std::fs::read_to_string(path).expect("the document");
        for table in Table::ALL {
            let section = text.split(&format!("### `{}`", table.name)).nth(1).expect("a section");
            let section = section.split("\n#").next().expect("a section");
            let documented: Vec<&str> = section
                .lines()
                .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
                .collect();
            let names: Vec<_> = table.columns.iter().map(|column| column.name).collect();
            assert_eq!(names, documented, "{}", table.name);
        }
    }
}

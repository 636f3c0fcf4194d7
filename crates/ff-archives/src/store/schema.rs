//! The tables and their columns, which `doc/sim-store.md` describes.

/// The version of the tables, of manifests and of the folder; it increases when any of them
/// changes.
pub const SCHEMA: u32 = 2;

/// The type of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// A time: milliseconds since 1970 in UTC.
    Time,
    /// An integer below 2^63.
    Int,
    /// An integer below 2^31.
    Small,
    /// A boolean.
    Bool,
    /// Text.
    Text,
    /// This number of bytes.
    Bytes(usize),
}

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The name of the column.
    pub name: &'static str,
    /// The type of the values.
    pub kind: ColumnKind,
    /// Whether values may be missing.
    pub is_nullable: bool,
}

/// A table of a store.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    /// The name of the table, and of its folder.
    pub name: &'static str,
    /// The columns of the table.
    pub columns: &'static [Column],
}

impl Table {
    /// All tables.
    pub const ALL: [&'static Self; 5] =
        [&CONSENSUSES, &CONSENSUS_RELAYS, &DESCRIPTORS, &BANDWIDTH_FILES, &BANDWIDTH_LINES];

    /// The index of a column; for constants, because it panics if there is no such column.
    pub(super) const fn place(&self, name: &str) -> usize {
        let mut at = 0;
        while !is_same(self.columns[at].name.as_bytes(), name.as_bytes()) {
            at += 1;
        }
        at
    }
}

/// Whether two texts are equal.
const fn is_same(mut one: &[u8], mut other: &[u8]) -> bool {
    while let ([first, left @ ..], [second, right @ ..]) = (one, other) {
        if *first != *second {
            return false;
        }
        (one, other) = (left, right);
    }
    one.is_empty() && other.is_empty()
}

/// A column in which values are never missing.
const fn required(name: &'static str, kind: ColumnKind) -> Column {
    Column { name, kind, is_nullable: false }
}

/// A column in which values may be missing.
const fn optional(name: &'static str, kind: ColumnKind) -> Column {
    Column { name, kind, is_nullable: true }
}

/// Consensuses, one row each.
pub const CONSENSUSES: Table = Table {
    name: "consensuses",
    columns: &[
        required("valid_after", ColumnKind::Time),
        required("flavour", ColumnKind::Text),
        required("method", ColumnKind::Int),
        required("relays", ColumnKind::Int),
        required("first_row", ColumnKind::Int),
        required("weight", ColumnKind::Int),
        required("params", ColumnKind::Text),
        required("bandwidth_weights", ColumnKind::Text),
        required("document_bytes", ColumnKind::Int),
        required("source_file", ColumnKind::Text),
        optional("source_entry", ColumnKind::Text),
    ],
};

/// The relays of consensuses, one row for each relay in each consensus.
pub const CONSENSUS_RELAYS: Table = Table {
    name: "consensus_relays",
    columns: &[
        required("valid_after", ColumnKind::Time),
        required("flavour", ColumnKind::Text),
        required("fingerprint", ColumnKind::Bytes(20)),
        optional("digest", ColumnKind::Bytes(20)),
        optional("microdescriptor_digest", ColumnKind::Bytes(32)),
        required("nickname", ColumnKind::Text),
        required("address", ColumnKind::Text),
        required("or_port", ColumnKind::Small),
        required("dir_port", ColumnKind::Small),
        optional("other_addresses", ColumnKind::Text),
        required("flags", ColumnKind::Small),
        required("version", ColumnKind::Text),
        optional("weight", ColumnKind::Int),
        required("is_unmeasured", ColumnKind::Bool),
    ],
};

/// Server descriptors, one row each.
pub const DESCRIPTORS: Table = Table {
    name: "descriptors",
    columns: &[
        required("digest", ColumnKind::Bytes(20)),
        required("fingerprint", ColumnKind::Bytes(20)),
        required("published", ColumnKind::Time),
        required("nickname", ColumnKind::Text),
        required("address", ColumnKind::Text),
        required("or_port", ColumnKind::Small),
        required("rate_bytes_per_sec", ColumnKind::Int),
        required("burst_bytes_per_sec", ColumnKind::Int),
        required("observed_bytes_per_sec", ColumnKind::Int),
        required("platform", ColumnKind::Text),
        optional("uptime_secs", ColumnKind::Int),
        optional("overloaded", ColumnKind::Time),
        required("family", ColumnKind::Text),
        required("family_ids", ColumnKind::Text),
    ],
};

/// Bandwidth files, one row each.
pub const BANDWIDTH_FILES: Table = Table {
    name: "bandwidth_files",
    columns: &[
        required("file_sha256", ColumnKind::Bytes(32)),
        required("latest", ColumnKind::Time),
        optional("version", ColumnKind::Text),
        optional("software", ColumnKind::Text),
        required("lines", ColumnKind::Int),
        required("header", ColumnKind::Text),
        required("source_file", ColumnKind::Text),
        optional("source_entry", ColumnKind::Text),
    ],
};

/// The relay lines of bandwidth files, one row each.
pub const BANDWIDTH_LINES: Table = Table {
    name: "bandwidth_lines",
    columns: &[
        required("file_sha256", ColumnKind::Bytes(32)),
        required("latest", ColumnKind::Time),
        required("line", ColumnKind::Int),
        required("fingerprint", ColumnKind::Bytes(20)),
        required("bw_kilobytes_per_sec", ColumnKind::Int),
        required("votes", ColumnKind::Bool),
        optional("nickname", ColumnKind::Text),
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

//! Writes the columns of a group of rows as Parquet.
//!
//! If values are repeated, a dictionary page has the distinct values, and data pages have the
//! numbers of the rows' values, each of as many whole bytes as the greatest needs: compression then
//! finds repetitions of the previous document at any offset. If most values are distinct, pages
//! have the values themselves. The `parquet` crate writes everything except the pages; its own
//! writer of values takes five times as long, because it hashes and compares each of them.

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::{ByteArray, FixedLenByteArray};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, SerializedRowGroupWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;
use zstd::bulk::Compressor;

use super::batch::{Batch, NONE, Values};
use super::schema::ColumnKind;

/// The compression level of pages.
const LEVEL: i32 = 1;
/// The size of a page of values in bytes, which the last value may exceed.
const PAGE_BYTES: usize = 1 << 20;
/// The greatest size of a dictionary page, in bytes.
const MOST_DICTIONARY_BYTES: usize = 16 << 20;
/// Longer texts and bytes are not stored as minimum or maximum.
const MOST_BOUND_BYTES: usize = 64;

/// Writes the column chunks of groups.
pub(super) struct Chunks {
    packer: Compressor<'static>,
    /// Memory for the rows of a column.
    space: Space,
}

/// Memory for rows, which is reused.
#[derive(Default)]
struct Space {
    /// Which rows have a value.
    levels: Vec<u8>,
    /// The numbers of the rows' values.
    keys: Vec<u32>,
}

/// The rows of a column before compression.
#[derive(Clone, Copy)]
struct Rows<'a> {
    /// 1 for each row with a value, otherwise 0; empty if all rows must have one.
    levels: &'a [u8],
    /// The numbers of the values, without rows that have none.
    keys: &'a [u32],
}

/// A column chunk that is being written.
struct Chunk<'a> {
    /// The compressor of its pages.
    packer: &'a mut Compressor<'static>,
    /// The bytes written so far.
    bytes: TrackedWrite<Vec<u8>>,
    /// The uncompressed size of these bytes.
    unpacked_bytes: usize,
    /// The encodings of its pages.
    encodings: Vec<Encoding>,
}

impl Chunks {
    /// Before the first group.
    pub(super) fn new() -> Result<Self> {
        Ok(Self { packer: Compressor::new(LEVEL)?, space: Space::default() })
    }

    /// The compression of pages, for the files' metadata.
    pub(super) fn compression() -> Result<Compression> {
        Ok(Compression::ZSTD(ZstdLevel::try_new(LEVEL)?))
    }

    /// Writes a group of rows.
    pub(super) fn write<W: std::io::Write + Send>(
        &mut self,
        batch: &Batch,
        columns: &[ColumnDescPtr],
        mut to: SerializedRowGroupWriter<'_, W>,
    ) -> Result<()> {
        let mut space = std::mem::take(&mut self.space);
        for ((values, keys), column) in batch.columns().zip(columns) {
            let rows = space.rows(values, keys);
            let (bytes, close) = self.column(values, rows, batch.rows(), column)?;
            to.append_column(&bytes, close)?;
        }
        self.space = space;
        to.close()?;
        Ok(())
    }

    /// Writes a column of a group; returns its bytes and metadata.
    fn column(
        &mut self,
        values: &Values,
        rows: Rows<'_>,
        count: usize,
        column: &ColumnDescPtr,
    ) -> Result<(Bytes, ColumnCloseResult)> {
        if !values.is_nullable() && rows.keys.contains(&NONE) {
            return Err(ParquetError::General(format!("{} has no value", column.name())));
        }
        let mut chunk = Chunk {
            packer: &mut self.packer,
            bytes: TrackedWrite::new(Vec::new()),
            unpacked_bytes: 0,
            encodings: Vec::new(),
        };
        let pays = (1..=rows.keys.len() / 2).contains(&values.len());
        // Parquet has no dictionary pages for booleans.
        let is_dictionary = pays
            && values.kind() != ColumnKind::Bool
            && values.plain().len() <= MOST_DICTIONARY_BYTES;
        let dictionary = if is_dictionary { chunk.dictionary(values)? } else { 0 };
        if is_dictionary {
            chunk.keys(values, rows, count)?;
        } else {
            chunk.values(values, rows, count)?;
        }
        let Chunk { bytes, unpacked_bytes, encodings, .. } = chunk;
        let bytes = bytes.into_inner()?;
        let metadata = ColumnChunkMetaData::builder(column.clone())
            .set_compression(Self::compression()?)
            .set_encodings(encodings)
            .set_num_values(count.try_into()?)
            .set_total_compressed_size(bytes.len().try_into()?)
            .set_total_uncompressed_size(unpacked_bytes.try_into()?)
            .set_dictionary_page_offset(is_dictionary.then_some(0))
            .set_data_page_offset(dictionary.try_into()?)
            .set_statistics(statistics(values, rows, (count - rows.keys.len()) as u64))
            .build()?;
        let close = ColumnCloseResult {
            bytes_written: bytes.len() as u64,
            rows_written: count as u64,
            metadata,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        Ok((bytes.into(), close))
    }
}

impl Chunk<'_> {
    /// Writes the dictionary page; returns its length.
    fn dictionary(&mut self, values: &Values) -> Result<usize> {
        let buf = Bytes::from(self.packer.compress(values.plain())?);
        let (num_values, encoding) = (values.len().try_into()?, Encoding::PLAIN);
        let page = Page::DictionaryPage { buf, num_values, encoding, is_sorted: false };
        self.page(page, values.plain().len())?;
        Ok(self.bytes.bytes_written())
    }

    /// Writes a page of values' numbers.
    fn keys(&mut self, values: &Values, rows: Rows<'_>, count: usize) -> Result<()> {
        let greatest = values.len().saturating_sub(1);
        let width = (1..4).find(|width| greatest >> (width * 8) == 0).unwrap_or(4);
        let mut page = Vec::with_capacity(count * width + count / 8 + 64);
        levels(values, rows.levels, &mut page);
        page.push(u8::try_from(width * 8)?);
        let groups = rows.keys.len().div_ceil(8);
        varint(groups << 1 | 1, &mut page);
        match width {
            1 => push_keys::<1>(rows.keys, &mut page),
            2 => push_keys::<2>(rows.keys, &mut page),
            3 => push_keys::<3>(rows.keys, &mut page),
            _ => push_keys::<4>(rows.keys, &mut page),
        }
        // Numbers are written in groups of eight.
        page.resize(page.len() + (groups * 8 - rows.keys.len()) * width, 0);
        self.data_page(&page, count, Encoding::RLE_DICTIONARY)
    }

    /// Writes pages of values.
    fn values(&mut self, values: &Values, rows: Rows<'_>, count: usize) -> Result<()> {
        let (mut at, mut keys) = (0, rows.keys.iter());
        let mut body = Vec::new();
        while at < count {
            let (start, mut bits) = (at, 0_usize);
            body.clear();
            while at < count && body.len() < PAGE_BYTES {
                if rows.levels.get(at).is_none_or(|level| *level == 1) {
                    let value = keys.next().map(|key| values.get(*key)).unwrap_or_default();
                    if values.kind() == ColumnKind::Bool {
                        push_bit(&mut body, bits, value == [1]);
                        bits += 1;
                    } else {
                        body.extend_from_slice(value);
                    }
                }
                at += 1;
            }
            let mut page = Vec::new();
            levels(values, rows.levels.get(start..at).unwrap_or_default(), &mut page);
            page.extend_from_slice(&body);
            self.data_page(&page, at - start, Encoding::PLAIN)?;
        }
        Ok(())
    }

    /// Writes a data page.
    fn data_page(&mut self, page: &[u8], rows: usize, encoding: Encoding) -> Result<()> {
        let buf = Bytes::from(self.packer.compress(page)?);
        let (level, statistics) = (Encoding::RLE, None);
        let data = Page::DataPage {
            buf,
            num_values: rows.try_into()?,
            encoding,
            def_level_encoding: level,
            rep_level_encoding: level,
            statistics,
        };
        self.page(data, page.len())
    }

    /// Writes a page with an uncompressed size of `unpacked_bytes`.
    fn page(&mut self, page: Page, unpacked_bytes: usize) -> Result<()> {
        for encoding in [page.encoding(), Encoding::RLE] {
            if !self.encodings.contains(&encoding) {
                self.encodings.push(encoding);
            }
        }
        let mut writer = SerializedPageWriter::new(&mut self.bytes);
        let written = writer.write_page(CompressedPage::new(page, unpacked_bytes))?;
        self.unpacked_bytes += written.uncompressed_size;
        Ok(())
    }
}

impl Space {
    /// The rows of a column, from the numbers of their values.
    fn rows<'a>(&'a mut self, values: &Values, keys: &'a [u32]) -> Rows<'a> {
        self.levels.clear();
        if !values.is_nullable() {
            return Rows { levels: &[], keys };
        }
        let nones = keys.iter().filter(|key| **key == NONE).count();
        if nones == 0 || nones == keys.len() {
            self.levels.resize(keys.len(), u8::from(nones == 0));
            let keys = if nones == 0 { keys } else { &[] };
            return Rows { levels: &self.levels, keys };
        }
        self.levels.extend(keys.iter().map(|key| u8::from(*key != NONE)));
        self.keys.clear();
        self.keys.extend(keys.iter().copied().filter(|key| *key != NONE));
        Rows { levels: &self.levels, keys: &self.keys }
    }
}

/// Appends numbers of `WIDTH` bytes, which is enough for each of them.
fn push_keys<const WIDTH: usize>(keys: &[u32], page: &mut Vec<u8>) {
    let start = page.len();
    page.resize(start + keys.len() * WIDTH, 0);
    let (places, _) = page.get_mut(start..).unwrap_or_default().as_chunks_mut::<WIDTH>();
    for (place, key) in places.iter_mut().zip(keys) {
        if let Some(bytes) = key.to_le_bytes().first_chunk() {
            *place = *bytes;
        }
    }
}

/// Appends the definition levels, if rows may have no value.
fn levels(values: &Values, levels: &[u8], page: &mut Vec<u8>) {
    if !values.is_nullable() {
        return;
    }
    let mut packed = Vec::new();
    match levels.first() {
        Some(first) if levels.iter().all(|level| level == first) => {
            varint(levels.len() << 1, &mut packed);
            packed.push(*first);
        }
        _ => {
            varint(levels.len().div_ceil(8) << 1 | 1, &mut packed);
            for (index, level) in levels.iter().enumerate() {
                push_bit(&mut packed, index, *level == 1);
            }
        }
    }
    // A page has no more rows than a group.
    page.extend(u32::try_from(packed.len()).unwrap_or(0).to_le_bytes());
    page.extend(packed);
}

/// Appends a bit after `index` others.
fn push_bit(to: &mut Vec<u8>, index: usize, bit: bool) {
    if index.is_multiple_of(8) {
        to.push(0);
    }
    if let Some(last) = to.last_mut() {
        *last |= u8::from(bit) << (index % 8);
    }
}

/// Appends a number, seven bits per byte.
#[expect(clippy::cast_possible_truncation, reason = "the lowest bits are what is wanted")]
fn varint(mut number: usize, to: &mut Vec<u8>) {
    while number > 0x7f {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

/// The minimum and maximum of the rows' values, and the number of rows without a value.
fn statistics(values: &Values, rows: Rows<'_>, nulls: u64) -> Statistics {
    // Some values are here only because the previous document had them.
    let mut used = vec![false; values.len()];
    for key in rows.keys {
        let place = usize::try_from(*key).ok().and_then(|key| used.get_mut(key));
        place.into_iter().for_each(|place| *place = true);
    }
    let keys = || (0..).zip(&used).filter_map(|(key, is_used)| is_used.then_some(key));
    let all = || keys().map(|key| values.get(key));
    let nulls = Some(nulls);
    match values.kind() {
        ColumnKind::Time | ColumnKind::Int => {
            let ints =
                || all().filter_map(|value| Some(i64::from_le_bytes(value.try_into().ok()?)));
            Statistics::int64(ints().min(), ints().max(), None, nulls, false)
        }
        ColumnKind::Small => {
            let ints =
                || all().filter_map(|value| Some(i32::from_le_bytes(value.try_into().ok()?)));
            Statistics::int32(ints().min(), ints().max(), None, nulls, false)
        }
        ColumnKind::Bool => {
            let truths = || all().map(|value| value == [1]);
            Statistics::boolean(truths().min(), truths().max(), None, nulls, false)
        }
        ColumnKind::Text => {
            let texts = || all().filter_map(|value| value.get(4..));
            let (least, greatest) = (bound(texts().min()), bound(texts().max()));
            Statistics::byte_array(least, greatest, None, nulls, false)
        }
        ColumnKind::Bytes(_) => {
            let bytes = |value| bound(value).map(FixedLenByteArray::from);
            Statistics::fixed_len_byte_array(
                bytes(all().min()),
                bytes(all().max()),
                None,
                nulls,
                false,
            )
        }
    }
}

/// A value as a bound, if it is short.
fn bound(value: Option<&[u8]>) -> Option<ByteArray> {
    value.filter(|value| value.len() <= MOST_BOUND_BYTES).map(|value| value.to_vec().into())
}

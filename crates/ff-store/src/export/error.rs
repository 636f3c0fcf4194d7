//! The error of an export.

use crate::error::StoreError;

/// Why an export failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The store could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Writing the CSV failed.
    #[error("failed to write the rows")]
    Csv(#[from] csv::Error),
    /// Writing the Parquet failed.
    #[error("failed to write the rows")]
    Parquet(#[from] parquet::errors::ParquetError),
    /// Completing the file failed.
    #[error("failed to write the rows")]
    Io(#[from] std::io::Error),
}

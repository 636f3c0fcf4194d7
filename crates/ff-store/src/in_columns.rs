//! Values that are stored in one or several columns of a row.

use ff_plan::outcome::{CellCounts, CpuSeconds, Failure, RoundTrip, SocketCounts};
use ff_proto::aggregate::{Draw, Verdict};
use rusqlite::types::Value;

use super::row::Columns;
use super::value::{MaybeVerdict, Stored, draw_name, draw_of};

/// A value that is stored in one or several columns.
pub(super) trait InColumns: Sized {
    /// Adds the value of each column.
    fn put(&self, values: &mut Vec<Value>);

    /// Reads the columns.
    fn take(columns: &mut Columns<'_, '_>) -> rusqlite::Result<Self>;
}

impl<T: Stored> InColumns for T {
    fn put(&self, values: &mut Vec<Value>) {
        values.push(self.stored().into());
    }

    fn take(columns: &mut Columns<'_, '_>) -> rusqlite::Result<Self> {
        columns.of()
    }
}

impl<T: Stored> InColumns for Option<T> {
    fn put(&self, values: &mut Vec<Value>) {
        values.push(self.as_ref().map_or(Value::Null, |value| value.stored().into()));
    }

    fn take(columns: &mut Columns<'_, '_>) -> rusqlite::Result<Self> {
        columns.maybe()
    }
}

impl InColumns for Result<Verdict, Failure> {
    fn put(&self, values: &mut Vec<Value>) {
        let failure = self.as_ref().err();
        MaybeVerdict(self.as_ref().ok().copied()).put(values);
        failure.map(|failure| failure.kind).put(values);
        failure.and_then(|failure| failure.relay_code).put(values);
        values.push(failure.map(|failure| failure.message.clone()).into());
    }

    fn take(columns: &mut Columns<'_, '_>) -> rusqlite::Result<Self> {
        let MaybeVerdict(verdict) = columns.of()?;
        let (kind, relay_code) = (columns.maybe()?, columns.maybe()?);
        let message: Option<String> = columns.take()?;
        match (verdict, kind, message) {
            (Some(verdict), ..) => Ok(Ok(verdict)),
            (None, Some(kind), Some(message)) => Ok(Err(Failure { kind, relay_code, message })),
            (None, ..) => columns.bad("no reason for a failure".to_owned()),
        }
    }
}

impl InColumns for Draw {
    fn put(&self, values: &mut Vec<Value>) {
        values.push(draw_name(*self).to_owned().into());
        self.value().put(values);
    }

    fn take(columns: &mut Columns<'_, '_>) -> rusqlite::Result<Self> {
        let (name, value): (String, _) = (columns.take()?, columns.maybe()?);
        match draw_of(&name, value) {
            Some(draw) => Ok(draw),
            None => columns.bad(format!("{value:?} of a draw {name:?}")),
        }
    }
}

/// A struct of numbers, each in its own column.
macro_rules! in_columns {
    ($group:ident { $($field:ident),+ }) => {
        impl InColumns for $group {
            fn put(&self, values: &mut Vec<Value>) {
                $(self.$field.put(values);)+
            }

            fn take(columns: &mut Columns<'_, '_>) -> rusqlite::Result<Self> {
                Ok(Self { $($field: InColumns::take(columns)?),+ })
            }
        }
    };
}

in_columns!(CellCounts { sent, echoed, checked, bad });
in_columns!(RoundTrip { p50, p90, p99, max });
in_columns!(SocketCounts { asked, opened });

impl InColumns for CpuSeconds {
    fn put(&self, values: &mut Vec<Value>) {
        self.measurers.put(values);
        self.target.put(values);
    }

    fn take(columns: &mut Columns<'_, '_>) -> rusqlite::Result<Self> {
        // A value that is not finite is stored as NULL.
        let measurers = columns.maybe()?.unwrap_or(f64::NAN);
        Ok(Self { measurers, target: columns.maybe()? })
    }
}

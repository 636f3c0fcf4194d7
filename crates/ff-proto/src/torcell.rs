//! The two cells as messages of Arti's `tor-cell`, for code that uses its codec.

use tor_bytes::{EncodeResult, Reader, Writer};
use tor_cell::chancell::{ChanCmd, ChanMsg};

use crate::cell::{BODY_LEN, Body, CMD_MEAS_ECHO, CMD_MEASUREMENT};
use crate::msg::Msg;

/// A cell of a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MeasurementCell {
    /// MEASUREMENT: a control message.
    Control(Box<Msg>),
    /// MEAS_ECHO: echo data.
    Echo(Box<Body>),
}

impl ChanMsg for MeasurementCell {
    fn cmd(&self) -> ChanCmd {
        match self {
            Self::Control(_) => CMD_MEASUREMENT.into(),
            Self::Echo(_) => CMD_MEAS_ECHO.into(),
        }
    }

    fn encode_onto<W: Writer + ?Sized>(self, w: &mut W) -> EncodeResult<()> {
        match self {
            Self::Control(message) => {
                let body = message.encode().map_err(|_| tor_bytes::EncodeError::BadLengthValue)?;
                w.write_all(&body);
            }
            Self::Echo(body) => w.write_all(body.as_slice()),
        }
        Ok(())
    }

    fn decode_from_reader(cmd: ChanCmd, r: &mut Reader<'_>) -> tor_bytes::Result<Self> {
        let body = r.take(BODY_LEN)?;
        match u8::from(cmd) {
            CMD_MEASUREMENT => Msg::decode(body)
                .map(|message| Self::Control(Box::new(message)))
                .map_err(|error| tor_bytes::Error::InvalidMessage(error.to_string().into())),
            CMD_MEAS_ECHO => {
                let mut echo = Box::new([0; BODY_LEN]);
                echo.copy_from_slice(body);
                Ok(Self::Echo(echo))
            }
            _ => Err(tor_bytes::Error::InvalidMessage("not a cell of a measurement".into())),
        }
    }
}

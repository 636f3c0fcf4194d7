//! Requests over streams of a circuit: the time to first byte, and the faults of streams that end
//! early.

use std::io;
use std::time::Instant;

use ff_circuits::record::FirstByte;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::client::{Client, Fault, us_since};
use crate::target::StreamTarget;

impl StreamTarget {
    /// Measures the time to first byte of a stream; a web server's response takes the same time
    /// with any status.
    ///
    /// # Errors
    /// [`Fault`] of the circuit or the target.
    pub async fn first_byte<C: Client>(
        &self,
        client: &C,
        circuit: &C::Circuit,
    ) -> Result<FirstByte, Fault> {
        let began = Instant::now();
        let mut stream = client.open(circuit, &self.host, self.port).await?;
        let open_us = us_since(began);
        ask::<C>(circuit, &mut stream, &self.first_byte_request()).await?;
        let mut bytes = [0; 2];
        let room = bytes.get_mut(..self.room(1)).unwrap_or_default();
        match stream.read(room).await {
            Ok(0) => Err(closed::<C>(circuit, &mut stream, 0, 1).await),
            Ok(1) => Ok(FirstByte { open_us, us: us_since(began) }),
            Ok(_) => Err(more(1)),
            Err(error) => Err(early::<C>(circuit, &mut stream, error).await),
        }
    }
}

/// The fault of a source that sends more than requested.
pub(crate) fn more(bytes: u64) -> Fault {
    Fault::target(format!("sent more than the {bytes} bytes that it was asked for"))
}

/// Sends a request.
pub(crate) async fn ask<C: Client>(
    circuit: &C::Circuit,
    stream: &mut C::Stream,
    request: &str,
) -> Result<(), Fault> {
    let mut sent = stream.write_all(request.as_bytes()).await;
    if sent.is_ok() {
        sent = stream.flush().await;
    }
    match sent {
        Ok(()) => Ok(()),
        Err(error) => Err(early::<C>(circuit, stream, error).await),
    }
}

/// The fault of a stream that fails.
pub(crate) async fn early<C: Client>(
    circuit: &C::Circuit,
    stream: &mut C::Stream,
    error: io::Error,
) -> Fault {
    let lost = C::lost(circuit, stream, Some(&error)).await;
    lost.unwrap_or_else(|| Fault::target(format!("closed early: {error}")))
}

/// The fault of a stream that ends too early.
pub(crate) async fn closed<C: Client>(
    circuit: &C::Circuit,
    stream: &mut C::Stream,
    came: u64,
    bytes: u64,
) -> Fault {
    let lost = C::lost(circuit, stream, None).await;
    lost.unwrap_or_else(|| Fault::target(format!("closed after {came} of {bytes} bytes")))
}

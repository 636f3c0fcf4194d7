//! The onion service of a source.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use axum::Router;
use ff_circuits::network::{self, CircuitNetwork};
use ff_operator::http;
use tokio::net::TcpListener;

use crate::cli::source::SourceArgs;
use crate::onion::{arti, tor};
use crate::run::client::{State, check_internet, started};
use crate::signals::Signals;

/// An onion service, if any.
pub(super) enum Onion {
    /// No service.
    None,
    /// Arti's, whose state lives as long.
    Arti(Box<arti::ArtiService>, State),
    /// A tor's, with the listener for its streams.
    Tor(tor::TorService, TcpListener),
}

impl Onion {
    /// Starts the requested service.
    ///
    /// # Errors
    /// If it does not start, or a signal is received before.
    pub(super) async fn start(args: &SourceArgs, signals: &mut Signals) -> Result<Self> {
        if !args.onion {
            return Ok(Self::None);
        }
        let state = State::new(args.keys.as_deref())?;
        let Some(dir) = &args.by else { return Self::by_arti(args, state, signals).await };
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = TcpListener::bind(any).await.context("Failed to listen on loopback")?;
        let to = listener.local_addr().context("Failed to get the port")?;
        let keys = args.keys.is_some().then(|| state.path());
        let service = tokio::select! {
            service = tor::publish(dir, keys, args.single, to) => service?,
            () = signals.recv() => bail!("stopped by a signal before tor had the onion service"),
        };
        Ok(Self::Tor(service, listener))
    }

    async fn by_arti(args: &SourceArgs, state: State, signals: &mut Signals) -> Result<Self> {
        let Some(named) = &args.network else {
            bail!(
                "--onion needs a network: give --network DIR or --network public, or --by tor:DIR for the service of a tor"
            );
        };
        let dir = network::directory(named);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let network = CircuitNetwork::read(&dir, now)?;
        check_internet(&dir, &network, args.public)?;
        let client = started(&network, state.path(), signals).await?;
        let service = arti::launch(client).map_err(anyhow::Error::msg);
        let service = service.context("Failed to launch the onion service")?;
        Ok(Self::Arti(Box::new(service), state))
    }

    /// Address with `.onion`.
    pub(super) fn address(&self) -> Option<&str> {
        match self {
            Self::None => None,
            Self::Arti(service, _) => Some(&service.address),
            Self::Tor(service, _) => Some(&service.address),
        }
    }

    /// Serves until the service ends by itself; a client may read nothing for `stall` at most.
    ///
    /// # Errors
    /// Always: the service has ended.
    pub(super) async fn serve(self, router: Router, stall: Duration) -> Result<()> {
        match self {
            Self::None => std::future::pending().await,
            Self::Arti(service, _state) => {
                let arti::ArtiService { streams, ended, .. } = *service;
                tokio::select! {
                    never = http::serve_to_all(streams, router, stall) => match never {},
                    _ = ended => bail!("Arti has ended the onion service"),
                }
            }
            Self::Tor(service, listener) => tokio::select! {
                never = http::serve_to_all(listener, router, stall) => match never {},
                why = service.ended => {
                    bail!("the onion service has ended with its tor: {}", why.unwrap_or_default())
                }
            },
        }
    }
}

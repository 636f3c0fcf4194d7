//! Requests to directory servers, and errors of their answers.

use core::fmt::Display;
use core::future::Future;

use tor_dirclient::request::{
    AuthCertRequest, ConsensusRequest, MicrodescRequest, Requestable, RouterDescRequest,
};
use tor_llcrypto::pk::rsa::RsaIdentity;
use tor_netdoc::doc::authcert::AuthCertKeyIds;

use super::head::Flavor;

/// A request to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// The current consensus, if these have signed it.
    Consensus(Flavor, Vec<RsaIdentity>),
    /// The certificates of these keys.
    Certificates(Vec<AuthCertKeyIds>),
    /// The server descriptors of these digests.
    Descriptors(Vec<[u8; 20]>),
    /// The microdescriptors of these digests.
    Microdescriptors(Vec<[u8; 32]>),
}

impl Request {
    /// As Arti's directory client sends it; that bounds the answer's size, too.
    pub(super) fn arti(&self) -> Box<dyn Requestable> {
        match self {
            Self::Consensus(flavor, authorities) => {
                let mut request = ConsensusRequest::new(flavor.arti());
                authorities.iter().for_each(|id| request.push_authority_id(*id));
                Box::new(request)
            }
            Self::Certificates(keys) => Box::new(keys.iter().copied().collect::<AuthCertRequest>()),
            Self::Descriptors(digests) => {
                Box::new(digests.iter().copied().collect::<RouterDescRequest>())
            }
            Self::Microdescriptors(digests) => {
                Box::new(digests.iter().copied().collect::<MicrodescRequest>())
            }
        }
    }
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AskError {
    /// The server cannot be reached.
    #[error("{0}")]
    Unreachable(String),
    /// The answer did not come, or not in time.
    #[error("no answer within {0} s")]
    TooSlow(u64),
    /// The answer is not valid.
    #[error("{0}")]
    BadAnswer(String),
}

/// Something that directory servers can be asked through.
pub(super) trait Ask: Sync {
    /// A server, which displays as messages call it.
    type Server: Clone + Display + Send + Sync;

    /// Asks a server. What comes back may be anything.
    fn ask(
        &self,
        server: &Self::Server,
        request: &Request,
    ) -> impl Future<Output = Result<String, AskError>> + Send;

    /// What is at hand of it without asking anybody, perhaps nothing.
    fn at_hand(&self, request: &Request) -> String;
}

/// Whom to ask.
#[derive(Clone, Debug)]
pub(super) struct Servers<S> {
    /// Directory caches, the first one first.
    pub(super) caches: Vec<S>,
    /// Authorities, which are asked when caches do not know.
    pub(super) authorities: Vec<S>,
}

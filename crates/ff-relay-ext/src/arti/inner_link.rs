//! Passes on what links do not change of their TLS connection: socket options, keys and
//! certificates.

/// Implements `StreamOps` and `CertifiedConn` of tor-rtcompat for a struct with the TLS connection
/// in its field `inner`.
macro_rules! as_its_inner_link {
    ($link:ident) => {
        impl<T: tor_rtcompat::StreamOps> tor_rtcompat::StreamOps for $link<T> {
            fn set_tcp_notsent_lowat(&self, bytes: u32) -> std::io::Result<()> {
                self.inner.set_tcp_notsent_lowat(bytes)
            }

            fn new_handle(&self) -> Box<dyn tor_rtcompat::StreamOps + Send + Unpin> {
                self.inner.new_handle()
            }
        }

        impl<T: tor_rtcompat::CertifiedConn> tor_rtcompat::CertifiedConn for $link<T> {
            fn export_keying_material(
                &self,
                len: usize,
                label: &[u8],
                context: Option<&[u8]>,
            ) -> std::io::Result<Vec<u8>> {
                self.inner.export_keying_material(len, label, context)
            }

            fn peer_certificate(&self) -> std::io::Result<Option<std::borrow::Cow<'_, [u8]>>> {
                self.inner.peer_certificate()
            }

            fn own_certificate(&self) -> std::io::Result<Option<std::borrow::Cow<'_, [u8]>>> {
                self.inner.own_certificate()
            }
        }
    };
}
pub(super) use as_its_inner_link;

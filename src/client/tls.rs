//! TLS for outgoing calls: rustls over ring, the compiled-in Mozilla roots and the operator's own roots. The machine's
//! trust store is not read, so the same build trusts the same authorities everywhere.

use crate::limits;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::sync::Arc;
use std::time::Duration;

/// The trust roots of this build, with `extra` beside them.
pub fn roots(extra: &[CertificateDer<'static>]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    for certificate in extra {
        roots.add(certificate.clone()).map_err(|e| format!("an extra root is not a usable certificate: {e}"))?;
    }
    Ok(roots)
}

/// A client configuration without client certificates. ALPN is the caller's to set.
pub fn client_config(extra: &[CertificateDer<'static>]) -> Result<rustls::ClientConfig, String> {
    Ok(rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|e| format!("no usable TLS version: {e}"))?
        .with_root_certificates(roots(extra)?)
        .with_no_client_auth())
}

/// A client for one place that the operator named: no proxy, no redirects, and an end when nothing moves for so long.
pub fn http_client(tls: &rustls::ClientConfig, stall_ms: u64) -> Result<reqwest::Client, String> {
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls.clone())
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(Duration::from_millis(limits::CONNECT_MS))
        .read_timeout(Duration::from_millis(stall_ms))
        .user_agent(concat!("verifica/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|e| format!("the HTTP client cannot be made: {e}"))
}

/// The certificates of a PEM text; at least one.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let read = read.map_err(|e| format!("not a PEM text of certificates: {e}"))?;
    if read.is_empty() {
        return Err("the PEM text holds no certificate".to_owned());
    }
    Ok(read)
}

/// The one cryptography provider of the process.
pub fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extra_roots_are_added_and_garbage_is_refused() {
        let made = rcgen::generate_simple_self_signed(vec!["mar.example".to_owned()]).expect("certificate");
        let read = certificates(made.cert.pem().as_bytes()).expect("pem");
        let plain = roots(&[]).expect("roots").len();
        assert_eq!(roots(&read).expect("roots").len(), plain + 1);
        assert!(client_config(&read).is_ok());
        assert!(certificates(b"").is_err());
        assert!(certificates(b"-----BEGIN CERTIFICATE-----\nAAAA").is_err());
        assert!(roots(&[CertificateDer::from(vec![1, 2, 3])]).is_err());
    }
}

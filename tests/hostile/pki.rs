//! Certificates of every kind that a server may show.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

pub struct Ca {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// What a server shows: the chain, leaf first, and the key of the leaf.
pub struct Identity {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Identity { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

impl Ca {
    pub fn new(name: &str) -> Self {
        let issuer = CertifiedIssuer::self_signed(ca_params(name), key()).expect("a root");
        Ca { issuer }
    }

    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    pub fn intermediate(&self, name: &str) -> Self {
        Ca { issuer: CertifiedIssuer::signed_by(ca_params(name), key(), &self.issuer).expect("an intermediate") }
    }

    pub fn certificate(&self) -> CertificateDer<'static> {
        self.issuer.der().clone()
    }

    pub fn leaf(&self, names: &[&str]) -> Identity {
        self.leaf_with(names, |_| {})
    }

    pub fn leaf_with(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let key = key();
        let mut params = leaf_params(names);
        change(&mut params);
        let leaf = params.signed_by(&key, &self.issuer).expect("a leaf");
        Identity { chain: vec![leaf.der().clone()], key: private(&key) }
    }
}

/// Its own issuer.
pub fn self_signed(names: &[&str]) -> Identity {
    let key = key();
    let leaf = leaf_params(names).self_signed(&key).expect("a certificate");
    Identity { chain: vec![leaf.der().clone()], key: private(&key) }
}

fn leaf_params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).expect("names");
    params.distinguished_name.push(DnType::CommonName, "leaf");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    params
}

fn ca_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key")
}

fn private(key: &KeyPair) -> PrivateKeyDer<'static> {
    PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()))
}

//! Authorities that sign certificates of servers and clients for tests.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, date_time_ymd,
};

/// An authority that signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// The certificate of the authority.
    pub pem: String,
}

impl Authority {
    /// Makes an authority with a name.
    pub fn new(name: &str) -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    /// Returns a certificate for `localhost` and 127.0.0.1, of a server or a client, that runs out with the first day of a
    /// year; and its private key.
    pub fn sign(&self, last_year: i32) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(last_year, 1, 1);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

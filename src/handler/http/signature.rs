//! Signed requests, by the Standard Webhooks scheme: who holds the secret can tell that a request is
//! ours, whole, and not an old one.

use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::secret_file::Secret;

/// The secrets to sign with. Several, while receivers change from one to the next.
pub(super) struct SigningKeys(Vec<Vec<u8>>);

impl SigningKeys {
    /// The value of `webhook-signature`: for each secret `v1,` and the HMAC-SHA256 of
    /// `id.timestamp.body` in base64, with blanks between them.
    pub(super) fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> String {
        let signatures = self.0.iter().map(|key| {
            // HMAC takes keys of any length.
            let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return String::new() };
            mac.update(format!("{id}.{timestamp}.").as_bytes());
            mac.update(body);
            format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
        });
        signatures.collect::<Vec<_>>().join(" ")
    }
}

impl Secret for SigningKeys {
    const WHAT: &'static str = "signature secret file";

    fn parse(text: &str) -> Result<Self, String> {
        const EXPECTED: &str = "expected whsec_ and the secret in base64, one to a line";
        let key = |word: &str| match STANDARD.decode(word.strip_prefix("whsec_").unwrap_or(word)) {
            Ok(key) if !key.is_empty() => Ok(key),
            Ok(_) | Err(_) => Err(EXPECTED.to_owned()),
        };
        let keys = text.split_whitespace().map(key).collect::<Result<Vec<_>, _>>()?;
        if keys.is_empty() { Err(format!("it is empty: {EXPECTED}")) } else { Ok(Self(keys)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the scheme's specification and its libraries.
    #[test]
    fn the_published_example_is_signed_as_published() {
        let keys = SigningKeys::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
        let signature = keys.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    /// `printf 'k.1.\000\377' | openssl dgst -sha256 -hmac one -binary | base64`, and the same with `two`.
    #[test]
    fn each_secret_of_a_file_signs_any_body() {
        let keys = SigningKeys::parse("whsec_b25l\ndHdv").unwrap();
        assert_eq!(
            keys.sign("k", 1, b"\x00\xff"),
            "v1,KuE3G8OlBLb8XgFxnahJAXQyK4Upo0Hpq2uZdlvh8no= v1,pxkseWskFczU01y2LpCGx+RojXtLeYkIayNpcufBlyA="
        );
    }

    #[test]
    fn what_is_no_secret_is_refused_without_showing_it() {
        for text in ["", " \n", "whsec_", "whsec_hidden!", "hidden_"] {
            let error = SigningKeys::parse(text).err().unwrap();
            assert!(error.contains("whsec_") && !error.contains("hidden"), "{text}: {error}");
        }
    }
}

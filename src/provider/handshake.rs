//! Challenges as data: how one is recognized, what proves it, and its answer.
//!
//! `verify` answers them. Must stay true: a file says what is echoed, and every other byte of an answer is its own.

use super::place::Place;

/// One kind of challenge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Handshake {
    pub(crate) method: &'static str,
    /// All of these hold; `None` is any text.
    pub(crate) wanted: Vec<(Spot, Option<String>)>,
    pub(crate) proof: ChallengeProof,
    /// What `{value}` stands for.
    pub(crate) value: Option<Spot>,
    /// The value is hexadecimal digits in lower case: what it can have signed is then no event.
    pub(crate) is_hex: bool,
    pub(crate) status: u16,
    /// The values are escaped, because the body is JSON.
    pub(crate) is_json: bool,
    pub(crate) body: Text,
    pub(crate) headers: Vec<(String, Text)>,
}

/// What proves a challenge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChallengeProof {
    /// What proves an event, its time included.
    Signature,
    /// The source's `verify_token` stands here.
    Token(Spot),
    /// The operator waits for it: the value becomes the source's secret.
    Registration,
    Nothing,
}

/// A place in a challenge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Spot {
    /// `query:NAME`
    Query(String),
    /// `header:NAME`, `json:/POINTER` or `form:FIELD`
    Request(Place),
}

/// Literals and placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text(pub(crate) Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    Literal(String),
    /// `{value}`
    Value,
    /// `{hmac-hex}`, `{hmac-base64}`: of the value, with the source's secret and the signature's hash.
    HmacHex,
    HmacBase64,
    /// `{sender}`: what the source has as `sender`.
    Sender,
    /// `{verify_token-sha256}`: of each line of the source's `verify_token`, in hex, one a line.
    TokenLines,
}

const PLACEHOLDERS: [(&str, Piece); 5] = [
    ("{value}", Piece::Value),
    ("{hmac-hex}", Piece::HmacHex),
    ("{hmac-base64}", Piece::HmacBase64),
    ("{sender}", Piece::Sender),
    ("{verify_token-sha256}", Piece::TokenLines),
];

impl Text {
    /// Every brace that does not begin a placeholder is a literal, as in JSON.
    pub(crate) fn parse(mut text: &str) -> Self {
        let mut pieces = Vec::new();
        let next = |text: &str| {
            let at =
                |(name, piece): &(&str, Piece)| Some((text.find(name)?, name.len(), piece.clone()));
            PLACEHOLDERS.iter().filter_map(at).min_by_key(|(at, ..)| *at)
        };
        while let Some((at, length, piece)) = next(text) {
            if at > 0 {
                pieces.push(Piece::Literal(text[..at].to_owned()));
            }
            pieces.push(piece);
            text = &text[at + length..];
        }
        if !text.is_empty() {
            pieces.push(Piece::Literal(text.to_owned()));
        }
        Text(pieces)
    }

    /// The text with what each placeholder stands for.
    pub(crate) fn fill(&self, mut value: impl FnMut(&Piece) -> String) -> String {
        let fill = |piece: &Piece| match piece {
            Piece::Literal(text) => text.clone(),
            other => value(other),
        };
        self.0.iter().map(fill).collect()
    }
}

impl Handshake {
    pub(crate) fn is_signed(&self) -> bool {
        self.proof == ChallengeProof::Signature
    }

    pub(crate) fn spots(&self) -> impl Iterator<Item = &Spot> {
        let token = match &self.proof {
            ChallengeProof::Token(spot) => Some(spot),
            _ => None,
        };
        self.wanted.iter().map(|(spot, _)| spot).chain(token).chain(&self.value)
    }

    pub(crate) fn header_names(&self) -> impl Iterator<Item = &str> {
        self.spots().filter_map(|spot| match spot {
            Spot::Request(place) => place.header(),
            Spot::Query(_) => None,
        })
    }

    fn pieces(&self) -> impl Iterator<Item = &Piece> {
        let headers = self.headers.iter().map(|(_, text)| text);
        headers.chain([&self.body]).flat_map(|text| &text.0)
    }

    /// Whether the answer has an HMAC with the source's secret.
    pub(crate) fn is_keyed(&self) -> bool {
        self.pieces().any(|piece| matches!(piece, Piece::HmacHex | Piece::HmacBase64))
    }

    pub(crate) fn echoes(&self) -> bool {
        self.is_keyed() || self.pieces().any(|piece| *piece == Piece::Value)
    }

    pub(crate) fn lists_tokens(&self) -> bool {
        self.pieces().any(|piece| *piece == Piece::TokenLines)
    }
}

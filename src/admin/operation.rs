//! What an operation of the API is, and how one is read from a request and answered.
//!
//! An operation is a struct: its fields are the parameters in its path, and the rest of them the query
//! of a GET or the JSON object in the body of a POST. The router, the client and the generated
//! reference work on this trait, so that a route is declared once.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::failure::{Failure, FailureKind};
use super::receiver::ReceiverState;
use crate::limits;
use crate::store::Admin;

/// The two methods of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
}

impl Method {
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
        }
    }
}

/// What an operation does to the store or the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing: both sockets serve it.
    Reads,
    /// Nothing, and it waits for a change: it has a place among the streams, and a stop ends it.
    Waits,
    /// Something, or it uses a secret or much disk: each call is logged with its caller.
    Changes,
}

/// Where an operation is carried out.
#[derive(Clone)]
pub struct Context {
    /// Its changes are the caller's in the audit list.
    pub store: Admin,
    /// The running receiver; `None` where the store is stopped and this process has its lock.
    pub receiver: Option<ReceiverState>,
}

/// A request of the API.
pub trait Operation: Serialize + DeserializeOwned + Send + 'static {
    const METHOD: Method;
    /// `{name}` stands for the field of that name.
    const PATH: &'static str;
    const EFFECT: Effect;
    /// Of a change.
    const MAX_BODY_BYTES: usize = limits::ADMIN_REQUEST_BYTES;
    type Reply: Serialize + DeserializeOwned + Send + 'static;

    fn perform(
        self,
        context: &Context,
    ) -> impl Future<Output = Result<Self::Reply, Failure>> + Send;
}

/// Declares an operation: the type of its request, its route and its code. The second form is for a type that is
/// declared elsewhere.
macro_rules! operation {
    (
        $(#[$about:meta])*
        $method:ident $path:literal $effect:ident $($max_body_bytes:path)?;
        $name:ident { $($(#[$field_about:meta])* $field:ident: $kind:ty),* $(,)? } -> $reply:ty,
        |$request:pat_param, $context:ident| $code:expr
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$field_about])* pub $field: $kind),*
        }

        operation! {
            $method $path $effect $($max_body_bytes)?;
            for $name => $reply,
            |$request, $context| $code
        }
    };
    (
        $(#[$about:meta])*
        $method:ident $path:literal $effect:ident $($max_body_bytes:path)?;
        for $name:ty => $reply:ty,
        |$request:pat_param, $context:ident| $code:expr
    ) => {
        $(#[$about])*
        impl $crate::admin::Operation for $name {
            const METHOD: $crate::admin::Method = $crate::admin::Method::$method;
            const PATH: &'static str = $path;
            const EFFECT: $crate::admin::Effect = $crate::admin::Effect::$effect;
            $(const MAX_BODY_BYTES: usize = $max_body_bytes;)?
            type Reply = $reply;

            async fn perform(
                self,
                $context: &$crate::admin::Context,
            ) -> Result<$reply, $crate::admin::Failure> {
                let $request = self;
                $code
            }
        }
    };
}
pub(super) use operation;

/// The parameters of a request as they came.
#[derive(Clone)]
pub(crate) struct Parameters {
    /// Name and text, still percent-encoded.
    pub(crate) path: Vec<(&'static str, String)>,
    pub(crate) query: String,
    pub(crate) body: Bytes,
}

impl Parameters {
    /// The operation that a request with this method asks for.
    pub(crate) fn parse<T: DeserializeOwned>(self, method: Method) -> Result<T, Failure> {
        // In the form of a query: there a plus is a space, and `&` ends a parameter.
        let in_query = |text: &str| text.replace('+', "%2B").replace('&', "%26");
        let path = self.path.iter().map(|(name, text)| format!("{name}={}", in_query(text)));
        let path = path.collect::<Vec<_>>().join("&");
        match method {
            Method::Get if !self.body.is_empty() => Err(malformed("a GET has no body")),
            Method::Get => {
                let parsed = actix_web::web::Query::from_query(&format!("{path}&{}", self.query));
                parsed.map(actix_web::web::Query::into_inner).map_err(malformed)
            }
            Method::Post if !self.query.is_empty() => {
                Err(malformed("a POST has its parameters in its body, not in a query"))
            }
            Method::Post => {
                let mut object: Map<String, Value> = match self.body.trim_ascii() {
                    b"" => Map::new(),
                    text => serde_json::from_slice(text).map_err(malformed)?,
                };
                for (name, text) in form_urlencoded::parse(path.as_bytes()) {
                    if object.insert(name.to_string(), Value::String(text.into())).is_some() {
                        return Err(malformed(format!("{name} is in the path and in the body")));
                    }
                }
                serde_json::from_value(Value::Object(object)).map_err(malformed)
            }
        }
    }
}

fn malformed(why: impl ToString) -> Failure {
    let version = env!("CARGO_PKG_VERSION");
    let why = why.to_string();
    Failure::new(
        FailureKind::Malformed,
        format!(
            "{why} (the receiver has version {version}; a command of another version needs a restart of it)"
        ),
    )
}

/// An operation as it goes over a socket: its path with its query, and the body.
pub(crate) fn encode<T: Serialize>(
    operation: &T,
    method: Method,
    path: &str,
) -> serde_json::Result<(String, Vec<u8>)> {
    let mut fields = match serde_json::to_value(operation)? {
        Value::Object(fields) => fields,
        // A unit struct.
        _ => Map::new(),
    };
    let segment = |segment: &str| match parameter(segment) {
        Some(name) => {
            let text = text_of(fields.remove(name).unwrap_or_default());
            form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
        }
        None => segment.to_owned(),
    };
    let mut target = path.split('/').map(segment).collect::<Vec<_>>().join("/");
    if method == Method::Post {
        return Ok((target, serde_json::to_vec(&fields)?));
    }
    fields.retain(|_, value| !value.is_null());
    if !fields.is_empty() {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(fields.into_iter().map(|(name, value)| (name, text_of(value))));
        target = format!("{target}?{}", query.finish());
    }
    Ok((target, Vec::new()))
}

/// The name in a segment `{name}` of a path.
pub(super) fn parameter(segment: &str) -> Option<&str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}

fn text_of(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

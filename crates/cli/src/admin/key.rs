//! The arguments that name a key, as a check does: by the entries of a request to rules, or by a key with its own limit.

use serde_json::{Map, Value, json};

use super::Problem;

/// A request that rules count, or a key with a limit that callers bring.
#[derive(clap::Args)]
pub(super) struct KeyArgs {
    #[command(flatten)]
    request: RequestArgs,
    /// Key with a limit that callers bring, instead of a domain
    #[arg(long, value_name = "KEY", requires = "limit", conflicts_with = "domain")]
    key: Option<String>,
    /// Limit of that key, such as 100/minute, or a JSON object as for `tidegate decide`
    #[arg(long, value_name = "RATE", requires = "key")]
    limit: Option<String>,
}

/// A request that rules count.
#[derive(clap::Args)]
pub(super) struct RequestArgs {
    /// Domain of the rules
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
    /// Entry of the request, in order; can be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair, requires = "domain")]
    entry: Vec<(String, String)>,
    /// Method of the HTTP request, for rules that look at it
    #[arg(long, value_name = "METHOD", requires = "domain")]
    method: Option<String>,
    /// Host of the HTTP request
    #[arg(long, value_name = "HOST", requires = "domain")]
    host: Option<String>,
    /// Path of the HTTP request, which can have a query
    #[arg(long, value_name = "PATH", requires = "domain")]
    path: Option<String>,
    /// Header of the HTTP request; can be repeated
    #[arg(long, value_name = "NAME: VALUE", value_parser = header, requires = "domain")]
    header: Vec<(String, String)>,
    /// Address of the client
    #[arg(long, value_name = "ADDRESS", requires = "domain")]
    address: Option<String>,
}

impl KeyArgs {
    /// Returns the fields of a request that name the key.
    pub(super) fn fields(&self) -> Result<Map<String, Value>, Problem> {
        let (Some(key), Some(limit)) = (&self.key, &self.limit) else { return self.request.fields() };
        let limit = match limit.trim_start().starts_with('{') {
            true => serde_json::from_str(limit)
                .map_err(|error| Problem::Arguments(format!("--limit: it is not JSON: {error}")))?,
            false => Value::from(limit.as_str()),
        };
        Ok(Map::from_iter([("key".to_owned(), key.as_str().into()), ("limit".to_owned(), limit)]))
    }
}

impl RequestArgs {
    /// Returns the fields of a request that name the key.
    pub(super) fn fields(&self) -> Result<Map<String, Value>, Problem> {
        let Some(domain) = &self.domain else {
            let problem = "name a key: use --domain and --entry, such as --domain api --entry user=42";
            return Err(Problem::Arguments(problem.to_owned()));
        };
        // A list keeps the order of entries.
        let entries: Vec<Value> = self.entry.iter().map(|(key, value)| json!({"key": key, "value": value})).collect();
        let descriptor = if entries.is_empty() { json!({}) } else { Value::from(entries) };
        let mut fields = Map::from_iter([
            ("domain".to_owned(), domain.as_str().into()),
            ("descriptors".to_owned(), Value::from(vec![descriptor])),
        ]);
        let request = self.http();
        if !request.is_empty() {
            fields.insert("request".to_owned(), request.into());
        }
        Ok(fields)
    }

    fn http(&self) -> Map<String, Value> {
        let (path, query) = match self.path.as_deref().map(|path| path.split_once('?').unwrap_or((path, ""))) {
            Some((path, query)) => (Some(path), Some(query).filter(|query| !query.is_empty())),
            None => (None, None),
        };
        let parts = [
            ("method", self.method.as_deref()),
            ("host", self.host.as_deref()),
            ("path", path),
            ("query", query),
            ("address", self.address.as_deref()),
        ];
        let given = parts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), Value::from(value?))));
        let mut request: Map<String, Value> = given.collect();
        if !self.header.is_empty() {
            let headers = self.header.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str())));
            request.insert("headers".to_owned(), Value::Object(headers.collect()));
        }
        request
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("use NAME=VALUE, such as user=42")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("use 'NAME: VALUE', such as 'user-agent: curl'")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

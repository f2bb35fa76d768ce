//! Lists of endpoints: `a.b.c.d[+n][:port]`, separated by commas.

use std::net::{Ipv4Addr, SocketAddrV4};

/// UDP port of an endpoint that names none.
pub const DEFAULT_PORT: u16 = 7148;

/// Largest number of endpoints in a list.
pub const MAX_ENDPOINTS: usize = 65536;

/// What is wrong with an endpoint list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Nothing between two commas, or nothing at all.
    #[error(
        "endpoint list {0:?} has an empty entry; write a.b.c.d[+n][:port], separated by commas"
    )]
    Empty(String),
    /// Not an IPv4 address.
    #[error("endpoint {0:?}: {1:?} is not an IPv4 address such as 239.102.0.64")]
    Address(String, String),
    /// Not a count.
    #[error("endpoint {0:?}: +{1} is not a number of further addresses such as +7")]
    Count(String, String),
    /// Not a port.
    #[error("endpoint {0:?}: {1:?} is not a UDP port; ports are 1 to 65535")]
    Port(String, String),
    /// The range leaves the address space or is too long.
    #[error(
        "endpoint {0:?}: the range runs past 255.255.255.255 or makes more than {MAX_ENDPOINTS} endpoints; use a smaller +n"
    )]
    Range(String),
}

/// Parses a list; `+n` means n further consecutive addresses, no port means [`DEFAULT_PORT`].
pub fn parse_endpoints(list: &str) -> Result<Vec<SocketAddrV4>, EndpointError> {
    let mut endpoints = Vec::new();
    for entry in list.split(',') {
        append(entry.trim(), list, &mut endpoints)?;
    }
    Ok(endpoints)
}

/// The list as [`parse_endpoints`] reads it, neighbours joined.
pub fn format_endpoints(endpoints: &[SocketAddrV4]) -> String {
    let next = |a: &SocketAddrV4, b: &SocketAddrV4| {
        a.port() == b.port() && u32::from(*a.ip()).checked_add(1) == Some((*b.ip()).into())
    };
    let entry = |run: &[SocketAddrV4]| match run.len() {
        1 => run[0].to_string(),
        n => format!("{}+{}:{}", run[0].ip(), n - 1, run[0].port()),
    };
    endpoints
        .chunk_by(next)
        .map(entry)
        .collect::<Vec<_>>()
        .join(",")
}

fn append(entry: &str, list: &str, endpoints: &mut Vec<SocketAddrV4>) -> Result<(), EndpointError> {
    if entry.is_empty() {
        return Err(EndpointError::Empty(list.to_owned()));
    }
    let (hosts, port) = match entry.rsplit_once(':') {
        Some((hosts, text)) => {
            let port = decimal(text).filter(|port| *port != 0);
            let port =
                port.ok_or_else(|| EndpointError::Port(entry.to_owned(), text.to_owned()))?;
            (hosts, port)
        }
        None => (entry, DEFAULT_PORT),
    };
    let (first, further) = match hosts.split_once('+') {
        Some((first, text)) => {
            let count: Option<u32> = decimal(text);
            let count =
                count.ok_or_else(|| EndpointError::Count(entry.to_owned(), text.to_owned()))?;
            (first, count)
        }
        None => (hosts, 0),
    };
    let address: Ipv4Addr = first
        .parse()
        .map_err(|_| EndpointError::Address(entry.to_owned(), first.to_owned()))?;
    let start = u32::from(address);
    let last = start
        .checked_add(further)
        .filter(|_| endpoints.len() + (further as usize) < MAX_ENDPOINTS)
        .ok_or_else(|| EndpointError::Range(entry.to_owned()))?;
    endpoints.extend((start..=last).map(|ip| SocketAddrV4::new(ip.into(), port)));
    Ok(())
}

/// Digits alone: `parse` would also take a sign.
fn decimal<T: std::str::FromStr>(text: &str) -> Option<T> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(list: &str) -> Vec<String> {
        let endpoints = parse_endpoints(list).unwrap();
        endpoints.iter().map(SocketAddrV4::to_string).collect()
    }

    #[test]
    fn ranges_and_ports() {
        assert_eq!(parsed("239.102.0.64"), ["239.102.0.64:7148"]);
        assert_eq!(
            parsed("239.1.2.255+1:7150,10.0.0.1:1"),
            ["239.1.2.255:7150", "239.1.3.0:7150", "10.0.0.1:1"]
        );
        let both = parsed("239.102.0.64+7:7148,239.102.1.64+7:7148");
        assert_eq!(both.len(), 16);
        assert_eq!(parsed("1.2.3.4+9,5.6.7.8+65525").len(), MAX_ENDPOINTS);
        assert_eq!(both[15], "239.102.1.71:7148");
    }

    #[test]
    fn lists_are_written_as_they_are_read() {
        for list in [
            "239.1.2.3:7148",
            "239.1.2.255+1:7150,10.0.0.1:1",
            "1.2.3.4:1,1.2.3.5:2",
        ] {
            assert_eq!(format_endpoints(&parse_endpoints(list).unwrap()), list);
        }
    }

    #[test]
    fn mistakes_are_named() {
        fn error(list: &str) -> EndpointError {
            parse_endpoints(list).unwrap_err()
        }
        assert!(matches!(error(""), EndpointError::Empty(_)));
        assert!(matches!(error("1.2.3.4,,5.6.7.8"), EndpointError::Empty(_)));
        assert!(matches!(error("example.org"), EndpointError::Address(..)));
        assert!(matches!(error("1.2.3:7148"), EndpointError::Address(..)));
        assert!(matches!(error("1.2.3.4+x"), EndpointError::Count(..)));
        assert!(matches!(error("1.2.3.4++1"), EndpointError::Count(..)));
        for port in ["", "0", "65536", "-1", "+1"] {
            let list = format!("1.2.3.4:{port}");
            assert!(matches!(error(&list), EndpointError::Port(..)), "{list}");
        }
        assert!(matches!(
            error("255.255.255.255+1"),
            EndpointError::Range(_)
        ));
        assert!(matches!(error("1.2.3.4+65536"), EndpointError::Range(_)));
        for rest in ["1.2.3.4+65535,5.6.7.8", "1.2.3.4+9,5.6.7.8+65526"] {
            assert!(matches!(error(rest), EndpointError::Range(_)), "{rest}");
        }
        assert!(error("1.2.3.4:0").to_string().contains("1.2.3.4:0"));
    }
}

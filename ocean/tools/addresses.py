"""The addresses that `fetch` may connect to. Pure."""

import ipaddress

# Our own table first: `is_global` differs between Python versions for 6to4, NAT64 and multicast.
BLOCKED = {
    "unspecified": "0.0.0.0/8 ::/128",
    "loopback": "127.0.0.0/8 ::1/128",
    "private": "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7",
    "link-local": "169.254.0.0/16 fe80::/10",
    "carrier-grade NAT": "100.64.0.0/10",
    "multicast": "224.0.0.0/4 ff00::/8",
    "IPv4-mapped": "::ffff:0:0/96",
    "NAT64": "64:ff9b::/96 64:ff9b:1::/48",
    "6to4": "192.88.99.0/24 2002::/16",
    "Teredo": "2001::/32",
    "Azure's host agent": "168.63.129.16/32",
    "documentation": "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20",
    "reserved": "192.0.0.0/24 198.18.0.0/15 240.0.0.0/4 2001::/23",
}
NETWORKS = [(ipaddress.ip_network(net), reason) for reason, nets in BLOCKED.items() for net in nets.split()]
GLOBAL_UNICAST_V6 = ipaddress.IPv6Network("2000::/3")


def blocked_because(ip: str) -> str | None:
    """Return why this address must not be connected to, or None for a public one."""
    if "%" in ip:
        return "scoped to a network zone"
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:
        return "not an IP address"
    for network, reason in NETWORKS:
        if address in network:
            return reason
    if not address.is_global or (address.version == 6 and address not in GLOBAL_UNICAST_V6):
        return "not public"
    return None

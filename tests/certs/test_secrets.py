"""Tests of what the two Secrets say, also after part of them is lost, and of what CAs may sign."""

from __future__ import annotations

import datetime

from cryptography import x509

from certs.authority import new_authority, sign_leaf
from certs.keypairs import KeyPair, pem_bundle
from certs.secrets import CertificateState, decode, encode_authority, encode_serving
from tests.testkit.certs.fake_cluster import NAMES, START

DAY = datetime.timedelta(days=1)


def without_key(authority: KeyPair) -> dict[str, bytes]:
    return {"ca.crt": authority.certificate_pem}


def test_an_authority_without_its_key_is_trusted_until_its_leaf_expires() -> None:
    authority = new_authority(NAMES, START)
    leaf = sign_leaf(authority, NAMES, START)
    serving = encode_serving(CertificateState(signer=authority, leaf=leaf))
    state = decode(without_key(authority), serving)
    assert state.signer is None
    assert state.retired == (authority.certificate,)
    assert state.retired_until == leaf.certificate.not_valid_after_utc


def test_a_second_lost_authority_stays_trusted_beside_the_first() -> None:
    later = new_authority(NAMES, START)
    earlier = new_authority(NAMES, START, 100 * DAY)
    secret = {**without_key(later), "retired.crt": pem_bundle([earlier.certificate])}
    state = decode(secret, {})
    assert state.retired == (earlier.certificate, later.certificate)
    assert state.retired_until == later.certificate.not_valid_after_utc


def test_the_later_end_of_two_counts() -> None:
    lost, retired = new_authority(NAMES, START, 50 * DAY), new_authority(NAMES, START)
    end = START + 80 * DAY
    before = CertificateState(retired=(retired.certificate,), retired_until=end)
    state = decode({**encode_authority(before), **without_key(lost)}, {})
    assert state.retired_until == end


def test_keys_may_be_used_for_one_purpose() -> None:
    authority = new_authority(NAMES, START)
    leaf = sign_leaf(authority, NAMES, START)
    assert allowed_uses(authority) == {"key_cert_sign"}
    assert allowed_uses(leaf) == {"digital_signature"}


def allowed_uses(pair: KeyPair) -> set[str]:
    usage = pair.certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    names = (
        *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
        *("key_agreement", "key_cert_sign", "crl_sign"),
    )
    return {name for name in names if getattr(usage, name)}

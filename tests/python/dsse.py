"""The other side of the envelope: securesystemslib for DSSE, in-toto-attestation for the statement.

Reads one JSON request on stdin and writes one JSON answer on stdout.

  {"do": "verify", "envelope": {...}, "public": HEX, "keyid": TEXT}  -> {"ok": bool, "why": TEXT, "statement": {...}}
  {"do": "make", "seed": HEX, "keyid": TEXT, "subjects": [[NAME, HEX]], "predicate_type": TEXT, "predicate": {...}}
                                                                      -> {"envelope": {...}, "pae": HEX}
"""

import json
import sys

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from google.protobuf import json_format
from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
from in_toto_attestation.v1.statement import Statement
from in_toto_attestation.v1 import statement_pb2
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import CryptoSigner, SSlibKey

PAYLOAD_TYPE = "application/vnd.in-toto+json"


def public_key(keyid, public):
    return SSlibKey(keyid, "ed25519", "ed25519", {"public": public})


def verify(request):
    try:
        envelope = Envelope.from_dict(request["envelope"])
        envelope.verify([public_key(request["keyid"], request["public"])], 1)
        if envelope.payload_type != PAYLOAD_TYPE:
            raise ValueError("another payload type")
        message = json_format.Parse(envelope.payload, statement_pb2.Statement())
        statement = Statement.copy_from_pb(message)
        statement.validate()
    except (VerificationError, ValueError, KeyError, json_format.ParseError) as why:
        return {"ok": False, "why": repr(why)}
    return {"ok": True, "why": "", "statement": json_format.MessageToDict(statement.pb)}


def make(request):
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(request["seed"]))
    public = key.public_key().public_bytes_raw().hex()
    signer = CryptoSigner(key, public_key(request["keyid"], public))
    subjects = [ResourceDescriptor(name=name, digest={"sha256": sha}).pb for name, sha in request["subjects"]]
    statement = Statement(subjects, request["predicate_type"], request["predicate"])
    statement.validate()
    payload = json_format.MessageToJson(statement.pb, indent=None).encode()
    envelope = Envelope(payload, PAYLOAD_TYPE, {})
    envelope.sign(signer)
    return {"envelope": envelope.to_dict(), "pae": envelope.pae().hex()}


if __name__ == "__main__":
    request = json.load(sys.stdin)
    json.dump({"verify": verify, "make": make}[request["do"]](request), sys.stdout)

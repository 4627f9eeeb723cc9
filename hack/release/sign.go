package main

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/dsse"
	"github.com/sigstore/sigstore/pkg/signature/payload"
)

// The forms of what cosign keeps in a registry
// (https://github.com/sigstore/cosign/blob/v3.1.3/specs/SIGNATURE_SPEC.md, ATTESTATION_SPEC.md).
const (
	simpleSigning     = types.MediaType("application/vnd.dev.cosign.simplesigning.v1+json")
	dsseEnvelope      = types.MediaType("application/vnd.dsse.envelope.v1+json")
	inToto            = "application/vnd.in-toto+json"
	signatureKey      = "dev.cosignproject.cosign/signature"
	predicateTypeKey  = "predicateType"
	pkcs8Key          = "PRIVATE KEY"
	encryptedKey      = "ENCRYPTED SIGSTORE PRIVATE KEY"
	earlyEncryptedKey = "ENCRYPTED COSIGN PRIVATE KEY"
)

// signer signs with one key, as cosign does.
type signer struct{ signature.SignerVerifier }

// loadSigner reads a private key: one of "cosign generate-key-pair", with its password in COSIGN_PASSWORD, or PKCS #8.
func loadSigner(file string) (*signer, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s is not in PEM", file)
	}
	der := block.Bytes
	switch block.Type {
	case pkcs8Key:
	case encryptedKey, earlyEncryptedKey:
		if der, err = encrypted.Decrypt(der, []byte(os.Getenv("COSIGN_PASSWORD"))); err != nil {
			return nil, fmt.Errorf("%s: COSIGN_PASSWORD does not decrypt it: %w", file, err)
		}
	default:
		return nil, fmt.Errorf("%s has a %q, want a %q or %q", file, block.Type, pkcs8Key, encryptedKey)
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	s, err := signature.LoadSignerVerifier(key, crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return &signer{s}, nil
}

// sign returns the signature of a file, in base64, as "cosign sign-blob" writes it.
func (s *signer) sign(data []byte) (string, error) {
	raw, err := s.SignMessage(bytes.NewReader(data))
	return base64.StdEncoding.EncodeToString(raw), err
}

// publicKey returns the public half of the key, in PEM.
func (s *signer) publicKey() ([]byte, error) {
	public, err := s.PublicKey()
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), err
}

// signature makes what "cosign sign" stores about a digest.
func (s *signer) signature(repository string, digest v1.Hash) (v1.Image, error) {
	reference, err := name.NewDigest(repository + "@" + digest.String())
	if err != nil {
		return nil, err
	}
	claim, err := payload.Cosign{Image: reference}.MarshalJSON()
	if err != nil {
		return nil, err
	}
	signed, err := s.sign(claim)
	if err != nil {
		return nil, err
	}
	return stored(claim, simpleSigning, map[string]string{signatureKey: signed})
}

// attestation makes what "cosign attest" stores: the statement in an envelope that is signed.
func (s *signer) attestation(statement []byte, predicateType string) (v1.Image, error) {
	envelope, err := dsse.WrapSigner(s, inToto).SignMessage(bytes.NewReader(statement))
	if err != nil {
		return nil, err
	}
	return stored(envelope, dsseEnvelope, map[string]string{signatureKey: "", predicateTypeKey: predicateType})
}

// stored is an image whose one layer is the document, with annotations on the layer.
func stored(data []byte, mediaType types.MediaType, annotations map[string]string) (v1.Image, error) {
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	return mutate.Append(base, mutate.Addendum{Layer: static.NewLayer(data, mediaType), Annotations: annotations})
}

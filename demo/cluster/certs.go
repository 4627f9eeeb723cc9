package cluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// validity is how long the certificates and tokens of a cluster last: more
// than anybody keeps a demo.
const validity = 7 * 24 * time.Hour

// authority is a certificate authority that lives as long as the cluster.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
}

// pair is a certificate with its key, in PEM, and the files that hold them.
type pair struct {
	cert, key         []byte
	certFile, keyFile string
}

func newAuthority(dir string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	template := certificate(pkix.Name{CommonName: "zonewise-demo-ca"})
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	a := &authority{dir: dir, cert: cert, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
	return a, os.WriteFile(a.file(), a.pem, 0o600)
}

func (a *authority) file() string { return filepath.Join(a.dir, "ca.crt") }

// server issues a certificate for a server on loopback.
func (a *authority) server(name string) (*pair, error) {
	template := certificate(pkix.Name{CommonName: name})
	template.KeyUsage = x509.KeyUsageDigitalSignature
	// etcd calls itself and its peers with the certificate that it serves.
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.IPAddresses = []net.IP{net.ParseIP(loopback), net.ParseIP(serviceIP)}
	template.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	return a.issue(name, template)
}

// client issues a certificate that authenticates as user in the groups.
func (a *authority) client(user string, groups ...string) (*pair, error) {
	template := certificate(pkix.Name{CommonName: user, Organization: groups})
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(filepath.Base(user)+"-client", template)
}

func (a *authority) issue(name string, template *x509.Certificate) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("certificate of %s: %w", name, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("certificate of %s: %w", name, err)
	}
	encoded, err := encodeKey(key)
	if err != nil {
		return nil, fmt.Errorf("certificate of %s: %w", name, err)
	}
	p := &pair{
		cert:     pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:      encoded,
		certFile: filepath.Join(a.dir, name+".crt"),
		keyFile:  filepath.Join(a.dir, name+".key"),
	}
	if err := os.WriteFile(p.certFile, p.cert, 0o600); err != nil {
		return nil, err
	}
	return p, os.WriteFile(p.keyFile, p.key, 0o600)
}

// serviceAccountKey writes the key that signs and checks tokens.
func serviceAccountKey(dir string) (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", fmt.Errorf("service account key: %w", err)
	}
	encoded, err := encodeKey(key)
	if err != nil {
		return "", fmt.Errorf("service account key: %w", err)
	}
	file := filepath.Join(dir, "service-account.key")
	return file, os.WriteFile(file, encoded, 0o600)
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func certificate(subject pkix.Name) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // crypto/rand does not fail on the systems that Go supports
	}
	now := time.Now()
	return &x509.Certificate{SerialNumber: serial, Subject: subject, NotBefore: now.Add(-time.Minute), NotAfter: now.Add(validity)}
}

package main

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority signs certificates by an intermediate one, so that a chain has to be sent and followed: who trusts the
// root knows nothing of the certificate in between.
type authority struct {
	dir    string // the PEM files
	root   string // PEM file of the certificate that is trusted
	middle *x509.Certificate
	key    crypto.Signer
	serial int64
}

// newAuthority makes both certificates; name makes the files and their subjects its own.
func newAuthority(dir, name string) (*authority, error) {
	a := &authority{dir: dir, root: filepath.Join(dir, name+".pem")}
	rootKey, err := newKey()
	if err != nil {
		return nil, err
	}
	root, err := a.sign(a.template(name+" root", true), nil, rootKey.Public(), rootKey)
	if err != nil {
		return nil, err
	}
	if a.key, err = newKey(); err != nil {
		return nil, err
	}
	if a.middle, err = a.sign(a.template(name+" signer", true), root, a.key.Public(), rootKey); err != nil {
		return nil, err
	}
	return a, os.WriteFile(a.root, pemOf("CERTIFICATE", root.Raw), 0o644)
}

// keyStore makes a certificate for this machine, or for a client of that name, and a PEM file with its private key, with
// itself and with the one that signed it.
func (a *authority) keyStore(name string) (string, error) {
	key, err := newKey()
	if err != nil {
		return "", err
	}
	cert, err := a.sign(a.template(name, false), a.middle, key.Public(), a.key)
	if err != nil {
		return "", err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key) // the form that Java reads
	if err != nil {
		return "", err
	}
	path := filepath.Join(a.dir, filepath.Base(a.root)+"-"+name+".pem")
	return path, os.WriteFile(path, bytes.Join([][]byte{pemOf("PRIVATE KEY", secret), pemOf("CERTIFICATE", cert.Raw),
		pemOf("CERTIFICATE", a.middle.Raw)}, nil), 0o600)
}

func (a *authority) template(name string, signs bool) *x509.Certificate {
	a.serial++
	now := time.Now()
	t := &x509.Certificate{SerialNumber: big.NewInt(a.serial),
		Subject:   pkix.Name{CommonName: name, OrganizationalUnit: []string{"compat"}, Organization: []string{"sekali"}},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour), BasicConstraintsValid: true, IsCA: signs,
		KeyUsage: x509.KeyUsageDigitalSignature}
	if signs {
		t.KeyUsage = x509.KeyUsageCertSign
		return t
	}
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	t.DNSNames, t.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	return t
}

// sign makes the certificate; parent nil: it signs itself.
func (a *authority) sign(t, parent *x509.Certificate, of crypto.PublicKey, by crypto.Signer) (*x509.Certificate, error) {
	if parent == nil {
		parent = t
	}
	der, err := x509.CreateCertificate(rand.Reader, t, parent, of, by)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func newKey() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

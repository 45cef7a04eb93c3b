// Package sshsig makes and verifies SSH signatures: the SSHSIG format of OpenSSH (PROTOCOL.sshsig), as ssh-keygen -Y sign and -Y verify
// use it. Keys are ed25519, ECDSA on the NIST curves, and RSA of 2048 to 16384 bits, which sign with SHA-512. DSA, RSA with SHA-1,
// certificates and keys of security tokens (sk-…) are refused.
package sshsig

import (
	"bytes"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
)

// MaxSize is the most bytes of a signature in its armor.
const MaxSize = 16 << 10

const (
	magic      = "SSHSIG"
	version    = 1
	armorType  = "SSH SIGNATURE"
	armorBegin = "-----BEGIN " + armorType + "-----"
	hashSHA512 = "sha512"
	hashSHA256 = "sha256"
	minRSABits = 2048
	maxRSABits = 16384 // as in OpenSSH; verifying takes a time that grows with the square
	lineLength = 70    // of the armor, as ssh-keygen writes it
)

// envelope is what follows the magic in a signature.
type envelope struct {
	Version   uint32
	PublicKey []byte
	Namespace string
	Reserved  []byte
	Hash      string
	Signature []byte
}

// signed is what follows the magic in the bytes that are signed.
type signed struct {
	Namespace string
	Reserved  []byte
	Hash      string
	Digest    []byte
}

// Signature is a parsed signature. Nothing of it is verified.
type Signature struct {
	Key       ssh.PublicKey // of the one who claims to have signed
	Namespace string

	hash string
	sig  *ssh.Signature
}

// Sign signs message for a namespace, which keeps signatures of one purpose from use for another. It returns the signature in its armor.
func Sign(rand io.Reader, signer ssh.Signer, namespace string, message []byte) ([]byte, error) {
	if err := CheckKey(signer.PublicKey()); err != nil {
		return nil, err
	}
	data := signedData(namespace, hashSHA512, message)
	sig, err := sign(rand, signer, data)
	if err != nil {
		return nil, err
	}
	s := &Signature{Key: signer.PublicKey(), Namespace: namespace, hash: hashSHA512, sig: sig}
	if err := s.Verify(namespace, message); err != nil { // an agent may have used another key or algorithm
		return nil, fmt.Errorf("the signature is not usable: %w", err)
	}
	blob := append([]byte(magic), ssh.Marshal(envelope{
		Version: version, PublicKey: s.Key.Marshal(), Namespace: namespace, Hash: hashSHA512, Signature: ssh.Marshal(sig),
	})...)
	return armor(blob), nil
}

func sign(rand io.Reader, signer ssh.Signer, data []byte) (*ssh.Signature, error) {
	if signer.PublicKey().Type() != ssh.KeyAlgoRSA {
		return signer.Sign(rand, data)
	}
	s, ok := signer.(ssh.AlgorithmSigner)
	if !ok {
		return nil, errors.New("this RSA key signs with SHA-1 only")
	}
	return s.SignWithAlgorithm(rand, data, ssh.KeyAlgoRSASHA512)
}

func armor(blob []byte) []byte {
	text := base64.StdEncoding.EncodeToString(blob)
	var b bytes.Buffer
	b.WriteString(armorBegin + "\n")
	for line := range slices.Chunk([]byte(text), lineLength) {
		b.Write(line)
		b.WriteByte('\n')
	}
	b.WriteString("-----END " + armorType + "-----\n")
	return b.Bytes()
}

// Parse reads a signature in its armor.
func Parse(armored []byte) (*Signature, error) {
	if len(armored) > MaxSize {
		return nil, fmt.Errorf("the signature has more than %d bytes", MaxSize)
	}
	block, rest := pem.Decode(armored)
	if block == nil || block.Type != armorType || len(block.Headers) > 0 || !bytes.HasPrefix(armored, []byte(armorBegin)) || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("not an SSH signature: it begins with " + armorBegin)
	}
	body, ok := bytes.CutPrefix(block.Bytes, []byte(magic))
	if !ok {
		return nil, errors.New("the SSH signature is damaged")
	}
	var e envelope
	if err := ssh.Unmarshal(body, &e); err != nil {
		return nil, fmt.Errorf("the SSH signature is damaged: %w", err)
	}
	if e.Version != version {
		return nil, fmt.Errorf("the SSH signature has version %d, this build reads %d", e.Version, version)
	}
	if e.Hash != hashSHA512 && e.Hash != hashSHA256 {
		return nil, fmt.Errorf("the SSH signature uses the hash %.20q: use sha512 or sha256", e.Hash)
	}
	key, err := ssh.ParsePublicKey(e.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("the key of the SSH signature: %w", err)
	}
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	s := &Signature{Key: key, Namespace: e.Namespace, hash: e.Hash, sig: new(ssh.Signature)}
	if err := ssh.Unmarshal(e.Signature, s.sig); err != nil {
		return nil, fmt.Errorf("the SSH signature is damaged: %w", err)
	}
	if len(s.sig.Rest) > 0 {
		return nil, errors.New("the SSH signature is damaged: it has bytes at its end")
	}
	return s, nil
}

// Verify returns an error unless the key of s signed message for the namespace. Whether the key is trusted is for the caller to say.
func (s *Signature) Verify(namespace string, message []byte) error {
	if s.Namespace != namespace {
		return fmt.Errorf("the signature is for the namespace %.40q, not %s", s.Namespace, namespace)
	}
	if !slices.Contains(algorithms(s.Key), s.sig.Format) {
		return fmt.Errorf("the signature uses the algorithm %.40q: use %s", s.sig.Format, strings.Join(algorithms(s.Key), " or "))
	}
	if s.Key.Verify(signedData(namespace, s.hash, message), s.sig) != nil {
		return errors.New("the signature does not match: what was signed, or the signature, was changed")
	}
	return nil
}

func signedData(namespace, hash string, message []byte) []byte {
	var digest []byte
	if hash == hashSHA256 {
		sum := sha256.Sum256(message)
		digest = sum[:]
	} else {
		sum := sha512.Sum512(message)
		digest = sum[:]
	}
	return append([]byte(magic), ssh.Marshal(signed{Namespace: namespace, Hash: hash, Digest: digest})...)
}

// algorithms returns the algorithms of signatures that are accepted from a key; none if the key is not.
func algorithms(key ssh.PublicKey) []string {
	switch t := key.Type(); t {
	case ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521:
		return []string{t}
	case ssh.KeyAlgoRSA:
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	default:
		return nil
	}
}

// CheckKey returns an error for a key that this package refuses.
func CheckKey(key ssh.PublicKey) error {
	if algorithms(key) == nil {
		return fmt.Errorf("keys of type %.60s are not accepted: use ed25519, ecdsa, or rsa of at least %d bits", key.Type(), minRSABits)
	}
	if c, ok := key.(ssh.CryptoPublicKey); ok {
		if k, ok := c.CryptoPublicKey().(*rsa.PublicKey); ok && (k.N.BitLen() < minRSABits || k.N.BitLen() > maxRSABits) {
			return fmt.Errorf("the RSA key has %d bits: use %d to %d, or an ed25519 key", k.N.BitLen(), minRSABits, maxRSABits)
		}
	}
	return nil
}

// Fingerprint returns the name of a key, SHA256:…, as ssh-keygen -l shows it.
func Fingerprint(key ssh.PublicKey) string { return ssh.FingerprintSHA256(key) }

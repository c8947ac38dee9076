package main

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
)

// tokenLetters make up tokens: safe in YAML, headers and shells.
const tokenLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

// newToken is 64 random letters and digits, 381 bits.
func newToken() string {
	const length = 64
	token := make([]byte, 0, length)
	buf := make([]byte, 2*length)
	for len(token) < length {
		_, _ = rand.Read(buf) // never fails: it ends the program instead
		for _, b := range buf {
			// Bytes above the last multiple of 62 would favour the first letters.
			if int(b) < 256-256%len(tokenLetters) && len(token) < length {
				token = append(token, tokenLetters[int(b)%len(tokenLetters)])
			}
		}
	}
	return string(token)
}

// newSigningKey is a new Ed25519 key, PKCS#8 in PEM.
func newSigningKey() ([]byte, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make signing key: %w", err)
	}
	return encodeKey(key)
}

// newSecretsKey is a new P-256 key, PKCS#8 in PEM.
func newSecretsKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make secrets key: %w", err)
	}
	return encodeKey(key)
}

func encodeKey(key any) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// isSigningKey says why path does not hold a key newSigningKey made, or nil.
// Errors never hold a part of the file.
func isSigningKey(path string) error {
	key, err := readKey(path)
	if err != nil {
		return err
	}
	if _, ok := key.(ed25519.PrivateKey); !ok {
		return errors.New("holds a key that is not Ed25519")
	}
	return nil
}

// isSecretsKey says why path does not hold a key newSecretsKey made, or nil.
func isSecretsKey(path string) error {
	key, err := readKey(path)
	if err != nil {
		return err
	}
	if secrets, ok := key.(*ecdsa.PrivateKey); !ok || secrets.Curve != elliptic.P256() {
		return errors.New("holds a key that is not P-256")
	}
	return nil
}

func readKey(path string) (any, error) {
	data, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, errors.New("holds no PEM block PRIVATE KEY")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("holds a PEM block that is no PKCS#8 key")
	}
	return key, nil
}

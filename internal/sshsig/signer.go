package sshsig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// maxKeyFile is the most bytes of a file with a key.
const maxKeyFile = 64 << 10

// OpenSigner returns the signer of a key file, and a function that releases it. The file is a private key of OpenSSH, or a public key (.pub)
// whose private key an ssh-agent has, at the socket that SSH_AUTH_SOCK names. For a key with a passphrase it asks the agent first, and then
// passphrase, whose error it returns.
func OpenSigner(ctx context.Context, path string, passphrase func(prompt string) (string, error)) (ssh.Signer, func(), error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxKeyFile {
		return nil, nil, fmt.Errorf("%s is not a key file", path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	signer, release, err := openSigner(ctx, path, data, passphrase)
	if err != nil {
		return nil, nil, err
	}
	if err := CheckKey(signer.PublicKey()); err != nil {
		release()
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return signer, release, nil
}

func openSigner(ctx context.Context, path string, data []byte, passphrase func(string) (string, error)) (ssh.Signer, func(), error) {
	if key, _, _, _, err := ssh.ParseAuthorizedKey(data); err == nil && !bytes.Contains(data, []byte("-----BEGIN ")) {
		return agentSigner(ctx, path, key)
	}
	signer, err := ssh.ParsePrivateKey(data)
	if err == nil {
		return signer, func() {}, nil
	}
	locked, ok := errors.AsType[*ssh.PassphraseMissingError](err)
	if !ok {
		return nil, nil, fmt.Errorf("%s is neither a private key of OpenSSH nor a public key: %w", path, err)
	}
	if locked.PublicKey != nil && os.Getenv("SSH_AUTH_SOCK") != "" {
		if signer, release, err := agentSigner(ctx, path, locked.PublicKey); err == nil {
			return signer, release, nil
		}
	}
	secret, err := passphrase("passphrase of " + path + ": ")
	if err != nil {
		return nil, nil, err
	}
	if signer, err = ssh.ParsePrivateKeyWithPassphrase(data, []byte(secret)); err != nil {
		return nil, nil, fmt.Errorf("%s cannot be decrypted: wrong passphrase", path)
	}
	return signer, func() {}, nil
}

// agentSigner returns the signer of a key that the ssh-agent has.
func agentSigner(ctx context.Context, path string, key ssh.PublicKey) (ssh.Signer, func(), error) {
	socket := os.Getenv("SSH_AUTH_SOCK")
	if socket == "" {
		return nil, nil, fmt.Errorf("%s is a public key, and no ssh-agent runs (SSH_AUTH_SOCK is not set): name the file of the private key", path)
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, nil, fmt.Errorf("the ssh-agent cannot be reached: %w", err)
	}
	signers, err := agent.NewClient(conn).Signers()
	if err == nil {
		for _, s := range signers {
			if bytes.Equal(s.PublicKey().Marshal(), key.Marshal()) {
				return s, func() { _ = conn.Close() }, nil
			}
		}
		err = fmt.Errorf("the ssh-agent does not have the key of %s: add it with ssh-add", path)
	}
	_ = conn.Close()
	return nil, nil, err
}

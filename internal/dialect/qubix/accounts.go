package qubix

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"net/http"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect"
)

// credentials is the body of POST /api/auth/register and /login.
type credentials struct {
	Email    string `json:"email"`
	Password string `json:"password"`
	Username string `json:"username"`
	Role     string `json:"role"`
}

// account is an account as clients see it. Nothing is stored: its fields are derived from e-mail, password and a secret of this
// server. An account provides the address that joining programs need. Neither the account nor its token grants rights.
type account struct {
	ID           string `json:"id"`
	Name         string `json:"name"`
	Username     string `json:"username"`
	Email        string `json:"email,omitempty"`
	Role         string `json:"role"`
	QubicAddress string `json:"qubicAddress"`
}

func (g *Gateway) account(c *credentials) (account, string, error) {
	email := strings.ToLower(strings.TrimSpace(c.Email))
	switch name, host, ok := strings.Cut(email, "@"); {
	case !ok || name == "" || host == "" || len(email) > 254 || sanitize(email, 254) != email:
		return account{}, "", muster.Errorf(muster.Invalid, "email is not an e-mail address")
	case c.Password == "" || len(c.Password) > 1024:
		return account{}, "", muster.Errorf(muster.Invalid, "password is missing, or has more than 1024 bytes")
	}
	digest := func(purpose string) []byte {
		h := hmac.New(sha256.New, g.secret)
		h.Write([]byte(purpose + "\x00" + email + "\x00" + c.Password))
		return h.Sum(nil)
	}
	name, _, _ := strings.Cut(email, "@")
	name = sanitize(orDefault(c.Username, name), maxText)
	role := "USER"
	if sanitize(c.Role, 20) != "" {
		role = sanitize(c.Role, 20)
	}
	return account{
		ID: hex.EncodeToString(digest("id")[:12]), Name: name, Username: name, Email: email, Role: role,
		QubicAddress: qubicAddress(append(digest("address"), digest("address, second part")...)),
	}, "account-" + base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(digest("token")), nil
}

// qubicAddress encodes 60 or more bytes as an address of QUBIC: 60 letters A to Z.
func qubicAddress(b []byte) string {
	out := make([]byte, 60)
	for i := range out {
		out[i] = 'A' + b[i]%26
	}
	return string(out)
}

// signUp serves POST /api/auth/register and /login. Each password is an account of its own.
func (g *Gateway) signUp(status int) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var c credentials
		if err := dialect.Decode(r, maxSmallBody, &c); err != nil {
			return err
		}
		user, token, err := g.account(&c)
		if err != nil {
			return err
		}
		dialect.WriteJSON(w, status, map[string]any{
			"success": true, "token": token, "user": user,
			"wallet": map[string]any{"qubicAddress": user.QubicAddress, "balance": nil},
		})
		return nil
	}
}

// user serves GET /api/users/{address}.
func (g *Gateway) user(w http.ResponseWriter, r *http.Request) error {
	address := r.PathValue("address")
	if !isAddress(address) {
		return muster.Errorf(muster.NotFound, "User not found")
	}
	user := account{ID: address, Name: address[:8], Username: address[:8], Role: "USER", QubicAddress: address}
	return reply(w, map[string]any{"success": true, "user": user})
}

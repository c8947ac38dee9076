package homeserver

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // the homeserver's protocol
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// maxAnswer bounds what is read of an answer; real ones have some hundred bytes.
const maxAnswer = 1 << 20

// Register makes an account and logs it in on a device of its own. user is the
// part of the Matrix ID before the colon. It is an error if the account exists.
func (s *Server) Register(ctx context.Context, user, password string, admin bool) (accessToken, deviceID string, err error) {
	const path = "/_synapse/admin/v1/register"
	var nonce struct {
		Nonce string `json:"nonce"`
	}
	if err := s.call(ctx, http.MethodGet, path, nil, &nonce); err != nil {
		return "", "", fmt.Errorf("register %s: %w", user, err)
	}
	role := "notadmin"
	if admin {
		role = "admin"
	}
	mac := hmac.New(sha1.New, []byte(s.secret))
	_, _ = io.WriteString(mac, nonce.Nonce+"\x00"+user+"\x00"+password+"\x00"+role) // a hash never fails
	err = s.call(ctx, http.MethodPost, path, map[string]any{
		"nonce":    nonce.Nonce,
		"username": user,
		"password": password,
		"admin":    admin,
		"mac":      hex.EncodeToString(mac.Sum(nil)),
	}, nil)
	if err != nil {
		return "", "", fmt.Errorf("register %s: %w", user, err)
	}
	// The device that registration makes has the same name for everybody.
	return s.Login(ctx, user, password)
}

// Login makes a new device for an existing account.
func (s *Server) Login(ctx context.Context, user, password string) (accessToken, deviceID string, err error) {
	var got struct {
		AccessToken string `json:"access_token"`
		DeviceID    string `json:"device_id"`
	}
	err = s.call(ctx, http.MethodPost, "/_matrix/client/v3/login", map[string]any{
		"type":       "m.login.password",
		"identifier": map[string]any{"type": "m.id.user", "user": user},
		"password":   password,
	}, &got)
	if err != nil {
		return "", "", fmt.Errorf("log in %s: %w", user, err)
	}
	if got.AccessToken == "" || got.DeviceID == "" {
		return "", "", fmt.Errorf("log in %s: the answer has no token or no device", user)
	}
	return got.AccessToken, got.DeviceID, nil
}

// call sends in as JSON, if there is one, and decodes the answer into out.
func (s *Server) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader = http.NoBody
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.URL()+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if resp.StatusCode != http.StatusOK {
		var fault struct {
			Code string `json:"errcode"`
			Text string `json:"error"`
		}
		_ = json.Unmarshal(b, &fault) // a status without a Matrix error says enough
		return fmt.Errorf("%s %s: status %d %s %s", method, path, resp.StatusCode, fault.Code, fault.Text)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("%s %s: decode answer: %w", method, path, err)
	}
	return nil
}

package homeserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"text/template"
)

// configText is the whole configuration. Paths without a slash in front are
// inside the homeserver's folder, where it runs.
//
//   - global.disable_federation: nothing leaves this machine
//   - mscs: without it Dendrite does not start
//   - bcrypt_cost 4: passwords of tests need not cost a second
const configText = `version: 2
global:
  server_name: {{q .ServerName}}
  private_key: ` + keyFile + `
  disable_federation: true
  trusted_third_party_id_servers: []
  report_stats: {enabled: false}
  presence: {enable_inbound: false, enable_outbound: false}
  cache: {max_size_estimated: 64mb, max_age: 1h}
  jetstream: {addresses: [], storage_path: jetstream, topic_prefix: Dendrite}
app_service_api:
  config_files: [{{if .RegistrationFile}}{{q .RegistrationFile}}{{end}}]
client_api:
  registration_disabled: true
  guests_disabled: true
  registration_shared_secret: {{q .SharedSecret}}
  rate_limiting: {enabled: {{.RateLimiting}}, threshold: 20, cooloff_ms: 500}
federation_api:
  database: {connection_string: "file:federationapi.db"}
  key_perspectives: []
key_server:
  database: {connection_string: "file:keyserver.db"}
media_api:
  database: {connection_string: "file:mediaapi.db"}
  base_path: media
  max_file_size_bytes: 10485760
mscs:
  mscs: []
  database: {connection_string: "file:mscs.db"}
relay_api:
  database: {connection_string: "file:relayapi.db"}
room_server:
  database: {connection_string: "file:roomserver.db"}
sync_api:
  database: {connection_string: "file:syncapi.db"}
  search: {enabled: false}
user_api:
  account_database: {connection_string: "file:userapi_accounts.db"}
  bcrypt_cost: 4
logging:
  - {type: std, level: info}
`

// config renders configText for o.
func config(o Options, sharedSecret string) ([]byte, error) {
	// A JSON string is a YAML string, whatever is in it.
	quote := func(s string) (string, error) {
		b, err := json.Marshal(s)
		return string(b), err
	}
	t, err := template.New("config").Funcs(template.FuncMap{"q": quote}).Parse(configText)
	if err != nil {
		return nil, fmt.Errorf("parse homeserver configuration: %w", err)
	}
	var buf bytes.Buffer
	err = t.Execute(&buf, struct {
		Options
		SharedSecret string
	}{o, sharedSecret})
	if err != nil {
		return nil, fmt.Errorf("render homeserver configuration: %w", err)
	}
	return buf.Bytes(), nil
}

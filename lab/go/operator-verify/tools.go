//go:build tools

package tools

import _ "github.com/operator-framework/api/cmd/operator-verify"

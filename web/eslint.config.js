import js from "@eslint/js";
import jsxA11y from "eslint-plugin-jsx-a11y";
import reactHooks from "eslint-plugin-react-hooks";
import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["dist", "node_modules", "src/api/schema.d.ts"] },
  js.configs.recommended,
  {
    files: ["**/*.{ts,tsx}"],
    extends: [...tseslint.configs.strictTypeChecked],
    languageOptions: { parserOptions: { project: ["./tsconfig.json", "./tsconfig.node.json"], tsconfigRootDir: import.meta.dirname } },
    rules: {
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
      "@typescript-eslint/no-confusing-void-expression": ["error", { ignoreArrowShorthand: true }],
      "@typescript-eslint/no-misused-promises": ["error", { checksVoidReturn: { attributes: false } }],
      "@typescript-eslint/consistent-type-imports": "error",
      // The API's documents have fields that a newer or older server may leave out.
      "@typescript-eslint/no-unnecessary-condition": "off",
    },
  },
  {
    files: ["src/**/*.{ts,tsx}"],
    extends: [reactHooks.configs.flat["recommended-latest"], jsxA11y.flatConfigs.recommended],
    rules: {
      // TanStack Virtual returns an object that changes in place; components that use it are written for that.
      "react-hooks/incompatible-library": "off",
      "max-lines": ["error", 600],
    },
  },
  {
    files: ["scripts/*.mjs", "e2e/*.mjs", "public/*.js", "*.js"],
    // Those of Node.js and, for what is evaluated in pages, of browsers.
    languageOptions: {
      globals: Object.fromEntries(
        ["console", "process", "localStorage", "navigator", "sessionStorage", "document", "window", "parent", "matchMedia", "URL", "fetch", "setTimeout", "performance", "requestAnimationFrame", "AbortSignal", "TextDecoder", "TextDecoderStream", "PerformanceObserver"].map((name) => [name, "readonly"]),
      ),
    },
  },
);

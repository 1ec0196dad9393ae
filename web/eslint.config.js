// Undefined and unused names are left to the type checker, which detects them better.
import js from '@eslint/js';

export default [
  {
    files: ['src/**/*.js'],
    ...js.configs.recommended,
    rules: {
      ...js.configs.recommended.rules,
      'no-undef': 'off',
      'no-unused-vars': 'off',
      eqeqeq: 'error',
      'no-var': 'error',
      'prefer-const': ['error', { destructuring: 'all' }],
      'no-eval': 'error',
      'no-implied-eval': 'error',
    },
  },
];

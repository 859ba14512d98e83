"""Who says what: prompt, parser, context policy, adapter, sampling."""

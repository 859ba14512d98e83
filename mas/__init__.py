"""mas: teams of LLM agents that can be trained together."""

__version__ = "0.1.0"

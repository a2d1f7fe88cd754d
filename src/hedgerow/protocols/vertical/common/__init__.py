"""What label holders and feature holders of all protocols do alike."""
